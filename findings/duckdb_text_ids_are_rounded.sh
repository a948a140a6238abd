#!/bin/sh
# DuckDB joins a column of integers with a column of texts by making integers of the texts. It rounds them: the text
# 7.4 joins with 7, and 3.6 with 4. Ids such as 3.1 and 3.2 join with 3.
# Exit status: 0 as stated here, 1 if the behaviour has changed, 2 if the packages could not be installed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/pip install --quiet --disable-pip-version-check duckdb==2.0.1 || exit 2
venv/bin/python - <<'PROGRAM'
from importlib.metadata import version

import duckdb

print(*(f"{name} {version(name)}" for name in ["duckdb"]), sep=", ")
print("expected: an error, or a comparison as texts; at most texts that write the same integer join")

connection = duckdb.connect()
connection.execute("CREATE TABLE rewards (id BIGINT, reward DOUBLE)")
connection.execute("INSERT INTO rewards VALUES (3, 0.25), (4, 0.5), (7, 1.0)")
connection.execute("CREATE TABLE prompts (id VARCHAR)")
connection.execute("INSERT INTO prompts VALUES ('3.1'), ('3.2'), ('3.6'), ('007'), ('7.4')")
join = "SELECT prompts.id, reward FROM prompts JOIN rewards ON prompts.id = rewards.id ORDER BY prompts.id"
joined = connection.execute(join).fetchall()
print("seen:", joined)
assert joined == [("007", 1.0), ("3.1", 0.25), ("3.2", 0.25), ("3.6", 0.5), ("7.4", 1.0)]
assert connection.execute("SELECT id FROM prompts WHERE id = 7 ORDER BY id").fetchall() == [("007",), ("7.4",)]
try:
    connection.execute("SELECT id FROM prompts WHERE id IN (SELECT id FROM rewards)")
    raise SystemExit("IN with a query is no error any more")
except duckdb.BinderException:
    print("seen: IN with a query is an error, where = is none")
PROGRAM
