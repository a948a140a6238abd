#!/bin/sh
# Checks a release whose wheel and sdist are in dist/, and prints what a person does next: `make release`.
# It uploads nothing. BIN is the folder of uv.
set -eu
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' budgetalloc/__init__.py)
grep -q "^## $version (" CHANGELOG.md || { echo "CHANGELOG.md has no heading '## $version (DATE)'." >&2; exit 1; }

"$BIN/uvx" --quiet twine check --strict dist/*
"$BIN/uvx" --quiet cffconvert --validate
resolved=$(mktemp)
for python in $(sed -n 's/.*"Programming Language :: Python :: \(3\.[0-9]*\)".*/\1/p' pyproject.toml); do
    "$BIN/uv" pip compile --quiet --upgrade --no-annotate --all-extras --python-version "$python" --output-file "$resolved" pyproject.toml >/dev/null
    echo "all extras with Python $python:" $(grep -E '^(numpy|scipy|pandas|torch|trl)==' "$resolved")
done
rm "$resolved"

grep -q '^\[project.urls\]' pyproject.toml ||
    echo "Before an upload: pyproject.toml has no [project.urls], so relative links and pictures of README.md lead nowhere on an index."
test -z "$(git status --porcelain)" || echo "Before an upload: commit your changes. They are in dist/ but would not be under the tag."
cat <<EOF
Nothing was uploaded. When the other steps of "A release" in CONTRIBUTING.md are done:
    git tag -a v$version -m "budgetalloc $version"     # then push it
    $BIN/uvx twine upload dist/*
EOF
