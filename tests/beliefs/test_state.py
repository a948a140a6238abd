"""State files: bit-exact, atomic, never unpickled."""

import pickle

import numpy as np
import pytest

import budgetalloc as ba


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
    one, two = policy.state_dict(), other.state_dict()
    assert one["ids"] == two["ids"]
    assert [type(x) for x in one["ids"]] == [type(x) for x in two["ids"]]  # 1 stays 1, "1" stays "1"
    assert one["evidence"].tobytes() == two["evidence"].tobytes()
    assert one["last"].tobytes() == two["last"].tobytes()
    budget = ba.Budget(rollouts=64, floor=0)
    ids = [*one["ids"], "new"]
    assert (policy.allocate(ids, budget) == other.allocate(ids, budget)).all()


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "state.npz"
    ba.save_state(path, trained().state_dict())
    before = path.read_bytes()

    def full_disk(file, **arrays):
        file.write(b"half of")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full_disk)
    with pytest.raises(OSError, match="No space left"):
        ba.save_state(path, trained(1).state_dict())
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


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


def test_any_damage_is_told_or_harmless(tmp_path):
    """Cut off anywhere, and every byte changed: never another state, never another error."""
    path = tmp_path / "state.npz"
    policy = ba.thompson()
    policy.observe(["a", "b"], [1, 0])
    ba.save_state(path, policy.state_dict(), {"dataset": "x"})
    whole, (state, about) = path.read_bytes(), ba.load_state(path)
    damaged = [whole[:at] for at in range(0, len(whole), 9)]
    damaged += [whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :] for at in range(len(whole))]
    told = 0
    for content in damaged:
        path.write_bytes(content)
        try:
            found, other = ba.load_state(path)
        except ba.StateError:
            told += 1
        else:  # a date in a header, for one
            assert (other, found.keys()) == (about, state.keys())
            assert all((np.asarray(found[key]) == np.asarray(state[key])).all() for key in state)
    assert told > 0.75 * len(damaged)


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
    path = tmp_path / "state.npz"
    path.write_bytes(pickle.dumps({"meta": 1}))
    with pytest.raises(ba.StateError, match="damaged or was not written by budgetalloc"):
        ba.load_state(path)
    np.savez(path, meta=np.array([{"format": 1}], dtype=object))
    with pytest.raises(ba.StateError, match="damaged or was not written by budgetalloc"):
        ba.load_state(path)


def test_missing_file_and_other_format(tmp_path):
    with pytest.raises(FileNotFoundError):
        ba.load_state(tmp_path / "none.npz")
    np.savez(tmp_path / "x.npz", meta=np.frombuffer(b'{"format": "other", "state": {}, "about": {}}', np.uint8))
    with pytest.raises(ba.StateError, match="has format 'other'"):
        ba.load_state(tmp_path / "x.npz")
