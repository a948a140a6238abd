"""State files: bit-exact, atomic, never unpickled."""

import copy
import functools
import io
import os
import pickle
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import budgetalloc as ba
import budgetalloc.policies
from budgetalloc import testing
from budgetalloc.beliefs.state import Stateful, Table

# `make fuzz` draws many new ones.
fuzzed = settings(max_examples=int(os.environ.get("BUDGETALLOC_FUZZ", "60")), deadline=None)


def trained(seed=0):
    policy = ba.thompson(seed=seed)
    rng = np.random.default_rng(5)
    for _ in range(7):
        ids = [f"p{n}" if n % 2 else n for n in rng.integers(0, 30, 40).tolist()]
        policy.observe(ids, rng.random(40))
    return policy


def test_a_full_disk_leaves_the_old_file_and_is_named(tmp_path):
    resource = pytest.importorskip("resource", reason="a limit on the size of files, in place of a full disk")
    path = tmp_path / "state.npz"
    ba.save_state(path, trained().state_dict())
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for size in (0, 100, len(before) - 50):
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
            with pytest.raises(OSError, match=r"could not be written.*Free some space") as caught:
                ba.save_state(path, trained(1).state_dict())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert caught.value.filename == str(path)
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_is_cut_off_before_its_end_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "state.npz"
    ba.save_state(path, trained().state_dict())
    before = path.read_bytes()

    def cut_off(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", cut_off)
    with pytest.raises(KeyboardInterrupt):
        ba.save_state(path, trained(1).state_dict())
    assert path.read_bytes() == before


def test_pickles_are_not_read(tmp_path):
    for path in (tmp_path / "pickle.npz", tmp_path / "objects.npz"):
        path.write_bytes(pickle.dumps({"meta": 1}))
        if path.stem == "objects":
            np.savez(path, meta=np.array([{"format": 1}], dtype=object))
        with pytest.raises(ba.StateError, match="damaged or was not written by budgetalloc"):
            ba.load_state(path)


def test_missing_file_and_other_format(tmp_path):
    with pytest.raises(FileNotFoundError):
        ba.load_state(tmp_path / "none.npz")
    np.savez(tmp_path / "x.npz", meta=np.frombuffer(b'{"format": "other", "state": {}, "about": {}}', np.uint8))
    with pytest.raises(ba.StateError, match="has format 'other'"):
        ba.load_state(tmp_path / "x.npz")


def memory_policy(seed=0):
    """A policy whose memory has a column that starts as NaN, signed ones and numbers."""
    policy = ba.methods.coba_rl(seed=seed)
    for _ in range(3):
        policy.observe(["a"] * 4 + [1] * 4, [0, 1, 1, 0, 0, 0, 0, 1])
    return policy


def test_four_threads_that_save_at_once_publish_whole_files(tmp_path):
    states = [trained(seed).state_dict() for seed in range(4)]
    path = tmp_path / "state.npz"

    def save_often(at):
        for _ in range(25):
            ba.save_state(path, states[at], {"by": at})
            state, about = ba.load_state(path)
            assert testing.same_state(state, states[about["by"]])

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(save_often, at) for at in range(4)]:
            done.result()
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_under_a_guessed_temporary_name_is_not_followed(tmp_path, monkeypatch):
    other, path = tmp_path / "other", tmp_path / "folder" / "state.npz"
    other.write_text("precious")
    path.parent.mkdir()
    monkeypatch.setattr("secrets.token_hex", lambda size: "0" * 2 * size)
    planted = path.parent / f".state.npz.{os.getpid()}.{'0' * 16}"
    planted.symlink_to(other)
    with pytest.raises(OSError, match="could not be written"):
        ba.save_state(path, trained().state_dict())
    assert other.read_text() == "precious"


@pytest.mark.parametrize("rows", [2**50, 2])
def test_a_header_with_another_size_than_its_content_is_damage(rows, tmp_path):
    path = tmp_path / "state.npz"
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (rows,)})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", header.getvalue() + bytes(24))
    with pytest.raises(ba.StateError, match="is damaged"):
        ba.load_state(path)


def test_an_error_of_the_disk_is_not_called_damage(tmp_path, monkeypatch):
    path = tmp_path / "state.npz"
    ba.save_state(path, trained().state_dict())

    def forbidden(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", forbidden)
    with pytest.raises(ba.StateError, match=r"Permission denied.*may be intact: check its permissions") as caught:
        ba.load_state(path)
    assert "delete" not in str(caught.value)
    with pytest.raises(PermissionError, match="give this user write permission"):
        ba.save_state(path, trained().state_dict())


def test_a_pipe_or_a_folder_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.npz")
    for path in (tmp_path / "pipe.npz", tmp_path):
        with pytest.raises(ba.StateError, match="is not a regular file"):
            ba.load_state(path)


TWICE = {"x/y": np.zeros(1), "x": {"y": np.zeros(1)}}


def test_a_state_that_cannot_be_saved_is_named_and_leaves_nothing(tmp_path):
    for state in (None, [], {1: 2}, {"x": object()}, {"x": np.array([object()])}, {"meta": np.zeros(1)}, TWICE):
        with pytest.raises(ba.StateError):
            ba.save_state(tmp_path / "state.npz", state)
    assert list(tmp_path.iterdir()) == []


HOSTILE = [None, True, -1, 2**62, 10**400, 0.5, float("nan"), float("inf"), -float("inf"), "x", "", [], [[]], [None]]
HOSTILE += [{}, {"a": 1}, [1, 2], [[1, 2], [3]], ["a", "a"], [["a"], [1]], np.zeros(0), np.zeros((2, 2))]
HOSTILE += [np.full(2, np.nan), np.full(2, -1.0), np.full(2, np.inf), np.array(["x", "y"]), np.array([1j, 2j])]
HOSTILE += [np.zeros((2, 2), dtype=bool)]
BUILD = [
    memory_policy,
    ba.methods.v05,
    ba.methods.pvpo,
    ba.methods.cero,
    partial(ba.methods.dump, domain_of=str),
    ba.adaptive,
]


def damage(state, draw):
    """A copy of a state with one of its entries, at any depth, replaced, removed or added to."""
    state = copy.deepcopy(state)
    part = state
    while True:
        key = draw(st.sampled_from(sorted(part, key=str) if isinstance(part, dict) else list(range(len(part)))))
        inside = part[key]
        if isinstance(inside, (dict, list)) and inside and draw(st.booleans()):
            part = inside
            continue
        kind = draw(st.sampled_from(["replace", "remove", "entry"]))
        if kind == "entry" and isinstance(inside, np.ndarray) and inside.size and inside.dtype.kind in "if":
            at = draw(st.integers(0, inside.size - 1))
            values = [-1, 2**62, 0] + ([np.nan, np.inf, -0.5, 1e300] if inside.dtype.kind == "f" else [])
            inside.flat[at] = draw(st.sampled_from(values))
        elif kind == "remove" and not isinstance(part, list):
            del part[key]
        else:
            part[key] = draw(st.sampled_from(HOSTILE))
        return state


@fuzzed
@given(st.data(), st.sampled_from(BUILD))
def test_any_entry_of_a_state_may_be_wrong_and_the_policy_is_whole(data, build):
    """Loaded, the policy plays on; refused, nothing of it has changed."""
    policy, restored = build(), build()
    for own, rate in ((policy, 1), (restored, 2)):
        for _ in range(rate):
            own.observe(["a"] * 4 + [1] * 4, [0, 1, 1, 0, 0, 0, 0, rate - 1])
    before, state = restored.state_dict(), damage(policy.state_dict(), data.draw)
    try:
        restored.load_state_dict(state)
    except ba.StateError:
        assert testing.same_state(restored.state_dict(), before)
    else:
        testing.play(restored, ["a", 1, "new"], ba.Budget(12), np.array([0, 0.5, 1]), np.random.default_rng(0))
        belief = restored.belief(["a", 1, "new"])
        assert np.isfinite([belief.alpha_P, belief.beta_P]).all()


@functools.cache
def saved_bytes():
    with tempfile.TemporaryDirectory() as folder:
        ba.save_state(f"{folder}/state.npz", memory_policy().state_dict(), {"dataset": "x"})
        return Path(folder, "state.npz").read_bytes()


@fuzzed
@given(st.data())
def test_damaged_bytes_are_reported_or_are_the_same_state(data):
    """Bytes changed, cut out, repeated or moved: a `StateError` or the state that was saved, never another one."""
    whole, draw = saved_bytes(), data.draw
    content = bytearray(whole)
    places = st.integers(0, len(whole))
    for _ in range(draw(st.integers(1, 4))):
        start, size, to = draw(places), draw(st.sampled_from([1, 2, 4, 16, 200])), draw(places)
        piece = content[start : start + size]
        kind = draw(st.sampled_from(["change", "bits", "cut", "repeat", "move", "end"]))
        if kind == "change":
            content[start : start + len(piece)] = draw(st.binary(min_size=len(piece), max_size=len(piece)))
        elif kind == "bits" and piece:
            content[start] ^= 1 << draw(st.integers(0, 7))
        elif kind == "cut":
            del content[start : start + size]
        elif kind == "repeat":
            content[to:to] = piece
        elif kind == "move":
            content[to : to + len(piece)] = piece
        else:
            del content[start:]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "state.npz")
        path.write_bytes(whole)
        state, about = ba.load_state(path)
        path.write_bytes(bytes(content))
        try:
            read, read_about = ba.load_state(path)
        except ba.StateError:
            return
    assert read_about == about
    assert testing.same_state(read, state)


@pytest.mark.parametrize("wrong", [{"ids": ["a", "foreign"], "step": 2}, {"step": 4}, {"ids": ["a"]}])
def test_a_memory_of_another_step_or_of_other_prompts_than_the_beliefs_is_refused(wrong):
    state, other = memory_policy().state_dict(), ba.methods.coba_rl()
    ids = wrong.get("ids", ["a", 1])
    columns = {key: x[: len(ids)] for key, x in state.items() if key.startswith("memory/")}
    with pytest.raises(ba.StateError, match=r"the memory is of step .*, the beliefs of step 3"):
        other.load_state_dict(state | columns | {"memory": state["memory"] | wrong})
    assert other.cold(["a"]).all()


class Part(Stateful):
    """One attribute of each kind, and a restored value that follows from another."""

    saved = ("steps", "share", "fallen", "rule", "ends", "_mean_D", "sums", "lengths", "prompts")
    may_be_nan = ("_mean_D",)

    def __init__(self):
        self.steps, self.share, self.fallen, self.rule = 3, 0.5, True, None
        self.ends, self.sums = (0.0, 1.0), {"n": 4.0, "flags": np.array([True, False])}
        self._mean_D = np.array([0.5, np.nan])
        self.lengths = Table({"tokens": (0.0, 0.0)})
        self.prompts = Inner()

    def check_restored(self):
        if self.ends[0] > self.ends[1]:
            raise ba.InputError("ends in descending order")


class Inner(Stateful):
    saved = ("learned",)

    def __init__(self):
        self.learned = Table({"visits": 0, "mean": np.nan, "run": 0.0}, {"run": -np.inf})


def part_with_prompts():
    part = Part()
    rows = part.lengths.add(["a", 1])
    part.lengths["tokens"][rows] = [[3, 4], [5, 6]]
    rows = part.prompts.learned.add(["b"])
    part.prompts.learned["run"][rows] = -2
    return part


def test_every_kind_of_attribute_is_restored_to_the_bit_from_a_file(tmp_path):
    part, other = part_with_prompts(), Part()
    ba.save_state(tmp_path / "state.npz", part.state_dict())
    other.load_state_dict(ba.load_state(tmp_path / "state.npz")[0])
    assert list(other.state_dict()) == [
        "steps",
        "share",
        "fallen",
        "rule",
        "ends",
        "mean",
        "sums",
        "ids",
        "tokens",
        "prompts",
    ]
    np.testing.assert_equal(other.state_dict(), part.state_dict())
    rows = other.lengths.add(["c", "a"])
    other.lengths["tokens"][rows] += 1
    assert other.lengths["tokens"].tolist() == [[4, 5], [5, 6], [1, 1]]
    assert part.lengths["tokens"].tolist() == [[3, 4], [5, 6]]


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": -1},
        {"steps": 0.5},
        {"share": np.nan},
        {"share": "x"},
        {"fallen": 1},
        {"rule": 3},
        {"ends": [0.0]},
        {"ends": [2.0, 1.0]},
        {"mean": [0.5]},
        {"mean": [0.5, np.inf]},
        {"sums": {"n": 4.0}},
        {"sums": {"n": 4.0, "flags": [0, 2]}},
        {"ids": ["a", "a"]},
        {"ids": ["a"]},
        {"tokens": np.full((2, 2), -1.0)},
        {"tokens": np.full((2, 2), np.nan)},
        {"prompts": {"ids": ["b"], "visits": [0.5], "mean": [0], "run": [0]}},
        {"prompts": {"ids": ["b"], "visits": [-1], "mean": [0], "run": [0]}},
        {"prompts": {"ids": ["b"], "visits": [1], "mean": [-1], "run": [0]}},
        {"prompts": None},
    ],
)
def test_an_entry_of_another_kind_is_refused_and_nothing_changes(wrong):
    part, before = part_with_prompts(), part_with_prompts().state_dict()
    with pytest.raises(ba.StateError):
        part.load_state_dict(before | wrong)
    np.testing.assert_equal(part.state_dict(), before)
    for key in before:
        with pytest.raises(ba.StateError, match=f"KeyError: '{key}'"):
            part.load_state_dict({name: value for name, value in before.items() if name != key})


def test_an_array_that_is_missing_is_damage(tmp_path):
    path = tmp_path / "state.npz"
    ba.save_state(path, {"x": np.zeros(3), "y": np.ones(2)})
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("meta.npy", "x.npy"):
            archive.writestr(name, content[name])
    with pytest.raises(ba.StateError, match="it holds"):
        ba.load_state(path)


@pytest.mark.parametrize("path", [5, None, ["state.npz"]])
def test_a_path_that_is_none_is_named(path):
    for call in (lambda: ba.save_state(path, ba.BetaEstimator().state_dict()), lambda: ba.load_state(path)):
        with pytest.raises(ba.StateError, match=r"^path=.*: give the path of a file"):
            call()
