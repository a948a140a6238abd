"""State files: bit-exact, atomic, never unpickled."""

import copy
import functools
import io
import os
import pickle
import tempfile
import tracemalloc
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

# `make fuzz` draws many new ones.
fuzzed = settings(max_examples=int(os.environ.get("BUDGETALLOC_FUZZ", "60")), deadline=None)


def trained(seed=0):
    policy = ba.thompson(seed=seed)
    rng = np.random.default_rng(5)
    for _ in range(7):
        ids = [f"p{n}" if n % 2 else n for n in rng.integers(0, 30, 40).tolist()]
        policy.observe(ids, rng.random(40))
    return policy


def test_round_trip_to_the_bit(tmp_path):
    policy = trained()
    ba.save_state(tmp_path / "state.npz", policy.state_dict(), {"dataset": "x", "n": 3})
    state, about = ba.load_state(tmp_path / "state.npz")
    assert about == {"dataset": "x", "n": 3}
    other = ba.thompson()
    other.load_state_dict(state)
    assert testing.same_state(policy.state_dict(), other.state_dict())
    budget = ba.Budget(rollouts=64, floor=0)
    ids = [*state["ids"], "new"]
    assert (policy.allocate(ids, budget) == other.allocate(ids, budget)).all()


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


def test_any_damage_is_reported_or_harmless(tmp_path):
    """The file is cut off anywhere, or one byte in three is changed. No other state is read, no other error raised."""
    path = tmp_path / "state.npz"
    policy = ba.thompson()
    policy.observe(["a", "b"], [1, 0])
    ba.save_state(path, policy.state_dict(), {"dataset": "x"})
    whole, (state, about) = path.read_bytes(), ba.load_state(path)
    damaged = [whole[:at] for at in range(0, len(whole), 9)]
    damaged += [whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :] for at in range(0, len(whole), 3)]
    reported = 0
    for content in damaged:
        path.write_bytes(content)
        try:
            loaded, other = ba.load_state(path)
        except ba.StateError:
            reported += 1
        else:  # such as a date in a header
            assert (other, loaded.keys()) == (about, state.keys())
            assert all((np.asarray(loaded[key]) == np.asarray(state[key])).all() for key in state)
    assert reported > 0.75 * len(damaged)


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


def test_a_small_file_that_would_unpack_to_a_large_state_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "state.npz"
    np.savez_compressed(path, meta=np.zeros(50_000_000, dtype=np.uint8))
    assert path.stat().st_size < 100_000
    tracemalloc.start()
    with pytest.raises(ba.StateError, match="compressed"):
        ba.load_state(path)
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()


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


def test_a_state_that_cannot_be_saved_is_named_and_leaves_nothing(tmp_path):
    for state in (None, [], {1: 2}, {"x": object()}, {"x": np.array([object()])}, {"meta": np.zeros(1)}):
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


def test_a_file_is_no_program_and_its_folders_are_made(tmp_path):
    path = tmp_path / "one" / "two" / "state.npz"
    ba.save_state(path, {"x": np.zeros(3)})
    assert path.stat().st_mode & 0o111 == 0


def test_all_of_a_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr("os.fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    ba.save_state(tmp_path / "state.npz", {"x": np.zeros(3)})
    assert synced == [(tmp_path / "state.npz").stat().st_size]


def test_an_interrupt_after_the_file_has_its_name_is_passed_on(tmp_path, monkeypatch):
    replace = os.replace

    def interrupted(*paths):
        replace(*paths)
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ba.save_state(tmp_path / "state.npz", {"x": np.zeros(3)})
    assert ba.load_state(tmp_path / "state.npz")[0]["x"].tolist() == [0, 0, 0]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_array_that_is_missing_or_there_twice_is_damage(tmp_path):
    path = tmp_path / "state.npz"
    ba.save_state(path, {"x": np.zeros(3), "y": np.ones(2)})
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    for names in (["meta.npy", "x.npy"], ["meta.npy", "x.npy", "y.npy", "x.npy"]):
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(name, content[name])
        with pytest.raises(ba.StateError, match="it holds"):
            ba.load_state(path)


def test_an_array_by_column_is_read_back(tmp_path):
    array = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    ba.save_state(tmp_path / "state.npz", {"x": array})
    assert ba.load_state(tmp_path / "state.npz")[0]["x"].tolist() == array.tolist()


def test_sizes_that_differ_are_taken_for_compression(tmp_path):
    """A listing that gives one member's size in the archive and another one unpacked."""
    path = tmp_path / "state.npz"
    ba.save_state(path, {"x": np.zeros(3)})
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"PK\x01\x02")  # of the last member: its unpacked size is at 24
    content[entry + 24] ^= 1
    path.write_bytes(content)
    with pytest.raises(ba.StateError, match="it is compressed"):
        ba.load_state(path)


def test_members_that_overlap_are_larger_than_the_file(tmp_path):
    """Two listed members of the same bytes."""
    path = tmp_path / "state.npz"
    ba.save_state(path, {"x": np.zeros(1000)})
    with zipfile.ZipFile(path, "a") as archive:
        twin = copy.copy(archive.getinfo("x.npy"))
        twin.filename = "y.npy"
        archive.filelist.append(twin)
        archive.NameToInfo["y.npy"] = twin
        archive._didModify = True
    with pytest.raises(ba.StateError, match="larger than the file"):
        ba.load_state(path)


@pytest.mark.parametrize("path", [5, None, ["state.npz"]])
def test_a_path_that_is_none_is_named(path):
    for call in (lambda: ba.save_state(path, ba.BetaEstimator().state_dict()), lambda: ba.load_state(path)):
        with pytest.raises(ba.StateError, match=r"^path=.*: give the path of a file"):
            call()
