#!/bin/sh
# In four single-player games of textarena the reward of an invalid move is a text, because reward and reason are
# passed in the wrong order. In RushHour a text that is no move earns more than 0, where others pay 0.
# Exit status: 0 as stated here, 1 if the behaviour has changed, 2 if the packages could not be installed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv || exit 2
venv/bin/pip install --quiet --disable-pip-version-check textarena==0.7.4 || exit 2
venv/bin/python - <<'PROGRAM'
from importlib.metadata import version

import contextlib
import io

with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    import textarena

print(*(f"{name} {version(name)}" for name in ["textarena"]), sep=", ")
print("expected: a number, 0 or -1 where nothing was achieved")


def reward_without_a_move(game):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        env = textarena.make(game)
        env.reset(num_players=1, seed=0)
        done = False
        while not done:
            env.get_observation()
            done, _ = env.step("I pass.")
        rewards, _ = env.close()
    return rewards[0]


for game in ["Countdown-v0", "Cryptarithm-v0", "Slitherlink-v0", "ThreeCardMonte-v0"]:
    reward = reward_without_a_move(game)
    print("seen,", game, repr(reward))
    assert isinstance(reward, str)
frozen, rush = (sorted(reward_without_a_move(game) for _ in range(8)) for game in ["FrozenLake-v0", "RushHour-v0"])
print("seen, FrozenLake-v0", frozen, "and RushHour-v0", rush)
assert frozen[-1] == 0 and rush[-1] > 0
PROGRAM
