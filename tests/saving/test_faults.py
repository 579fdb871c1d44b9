"""Whatever happens to a run or to its checkpoint folder, it ends with the numbers of an undisturbed run or says why
not.
"""

import contextlib
import errno
import gc
import os
import pickle
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import runs
from wior.running import loop
from wior.saving import checkpoint
from wior.saving.checkpoint import Checkpoint, Saved, SaveError, Store
from wior.saving.lock import FolderLock

# ---- damaged saves


def leaves(step):
    """What a carry may hold: numbers of several types, one alone, none at all."""
    rng = np.random.default_rng(step)
    return [
        rng.normal(size=(40, 3)),
        rng.normal(size=300).astype(np.float32),
        np.asarray(jnp.asarray(rng.normal(size=50), jnp.bfloat16)),
        rng.integers(0, 2**32, 6, dtype=np.uint32),
        rng.normal(size=9) > 0,
        np.asarray(step, np.int32),
        np.zeros((0, 4)),
    ]


def state_of(step):
    return Saved(step, leaves(step), {"step": np.arange(step)}, {"seconds": step / 7, "calls": {"f": [step, 2]}})


@contextlib.contextmanager
def store_in(folder, **options):
    store = Store(Checkpoint(folder, **options), {"problem": "Bilevel", "seed": 3})
    try:
        yield store
    finally:
        store.close()


@pytest.fixture(scope="module")
def two_saves(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults") / "run"
    with store_in(folder) as store:
        store.save(state_of(20))
        store.save(state_of(40))
    return folder


def demand_equal(found, expected):
    assert found.step == expected.step
    for a, b in zip(found.leaves, expected.leaves, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert a.tobytes() == b.tobytes()
    np.testing.assert_array_equal(found.history["step"], expected.history["step"])
    assert {name: found.about[name] for name in expected.about} == expected.about


def flip(content, at):
    return content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :]


DAMAGE = {
    "removed": lambda path: path.unlink(),
    "emptied": lambda path: path.write_bytes(b""),
    "cut in half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "one bit flipped": lambda path: path.write_bytes(flip(path.read_bytes(), path.stat().st_size // 2)),
}


def loaded_after(harm, file, two_saves, folder):
    """Whether a load after harm to one file of the newer save takes the older one; both are checked to the bit."""
    shutil.copytree(two_saves, folder)
    harm(folder / "40" / file)
    with store_in(folder) as store, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = store.load(leaves(40))
    messages = [str(one.message) for one in said if issubclass(one.category, UserWarning)]  # older orbax adds its own
    shutil.rmtree(folder)
    if found.step == 40:
        demand_equal(found, state_of(40))
        assert messages == []
        return False
    demand_equal(found, state_of(20))
    assert len(messages) == 1
    assert str(folder) in messages[0]
    assert re.search(r"the save at step 40 is damaged \(.+\); resuming from step 20", messages[0])
    assert "Traceback" not in messages[0]
    return True


def files_of(save):
    return sorted(str(path.relative_to(save)) for path in save.rglob("*") if path.is_file())


@pytest.mark.parametrize("harm", DAMAGE.values(), ids=DAMAGE)
def test_harm_to_any_file_is_noticed_or_does_no_harm(harm, two_saves, tmp_path, capfd):
    files = files_of(two_saves / "40")
    assert len(files) >= 8
    noticed = [file for file in files if loaded_after(harm, file, two_saves, tmp_path / "run")]
    # the numbers lie in files of `d` folders, the description in `metadata`
    assert "about/metadata" in noticed
    assert any("/d/" in file for file in noticed)
    assert "Traceback" not in capfd.readouterr().err


def test_reads_that_are_given_up_late_print_nothing(two_saves, tmp_path, monkeypatch):
    shutil.copytree(two_saves, tmp_path / "run")
    (tmp_path / "run" / "40" / "arrays" / "manifest.ocdbt").write_bytes(b"")
    printed = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: printed.append(str(unraisable.exc_value)))
    own = sys.unraisablehook
    with store_in(tmp_path / "run") as store:
        with pytest.warns(UserWarning, match="resuming from step 20"):
            store.load(leaves(40))
        time.sleep(0.2)
    assert printed == []
    assert sys.unraisablehook is own


@pytest.mark.slow
def test_any_byte_flipped_is_noticed_or_does_no_harm(two_saves, tmp_path):
    rng = random.Random(0)
    files = files_of(two_saves / "40")
    noticed = 0
    for _ in range(600):
        at = rng.random()
        harm = lambda path, at=at: path.write_bytes(flip(path.read_bytes(), int(at * path.stat().st_size)))
        noticed += loaded_after(harm, rng.choice(files), two_saves, tmp_path / "run")
    assert noticed > 60  # some three of thirteen files are read; their names, and so the choice, are random


def test_bytes_of_numbers_are_covered_by_the_checksum_alone(two_saves, tmp_path, monkeypatch):
    """A value that the file format has no way to doubt."""
    shutil.copytree(two_saves, tmp_path / "run")
    restore = lambda store: (store.load(leaves(40)).step, store.close())[0]
    real = checkpoint.checksum
    monkeypatch.setattr(checkpoint, "checksum", lambda value: real(value) ^ (value.size == 300))
    with pytest.raises(ValueError, match="its numbers are not those that were written"):
        restore(Store(Checkpoint(tmp_path / "run"), {"problem": "Bilevel", "seed": 3}))


def test_a_damaged_save_is_replaced_by_the_next_one(two_saves, tmp_path):
    shutil.copytree(two_saves, tmp_path / "run")
    (tmp_path / "run" / "40" / "about" / "metadata").unlink()
    with store_in(tmp_path / "run") as store:
        with pytest.warns(UserWarning, match="resuming from step 20"):
            store.load(leaves(40))
        store.save(state_of(30))  # only now is the damaged one gone: what cannot be read today may be tomorrow
        assert sorted(os.listdir(tmp_path / "run")) == [".lock", "20", "30"]
    with store_in(tmp_path / "run") as store:
        demand_equal(store.load(leaves(40)), state_of(30))


def test_a_damaged_save_is_replaced_by_one_of_the_same_step(two_saves, tmp_path):
    shutil.copytree(two_saves, tmp_path / "run")
    (tmp_path / "run" / "40" / "about" / "metadata").write_text("{")
    with store_in(tmp_path / "run") as store:
        with pytest.warns(UserWarning, match="resuming from step 20"):
            store.load(leaves(40))
        store.save(state_of(40))
    with store_in(tmp_path / "run") as store:
        demand_equal(store.load(leaves(40)), state_of(40))


def test_an_older_format_is_refused_by_name(two_saves, tmp_path):
    shutil.copytree(two_saves, tmp_path / "run")
    for step in (20, 40):
        (tmp_path / "run" / str(step) / "about" / "metadata").write_text('{"format": 1}')
    with (
        store_in(tmp_path / "run") as store,
        pytest.raises(ValueError, match="has format 1; this version of wior reads"),
    ):
        store.load(leaves(40))


def test_nothing_is_unpickled(two_saves, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a pickle was read")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    with store_in(two_saves) as store:
        demand_equal(store.load(leaves(40)), state_of(40))


# ---- leftovers and locks


def test_leftovers_are_no_saves_and_go_at_the_next_start(two_saves, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(two_saves, folder)
    for name in ("60.orbax-checkpoint-tmp", "60.orbax-checkpoint-tmp-1234", ".removed-20"):
        shutil.copytree(two_saves / "20", folder / name)
    with store_in(folder) as store:
        assert sorted(os.listdir(folder)) == [".lock", "20", "40"]
        demand_equal(store.load(leaves(40)), state_of(40))
        store.save(state_of(60))
    assert sorted(os.listdir(folder)) == [".lock", "40", "60"]


def test_a_folder_serves_one_run_at_a_time(tmp_path):
    folder = tmp_path / "run"
    with store_in(folder), pytest.raises(ValueError, match="in use by another run") as raised:
        runs.solve(checkpoint=folder)
    assert str(folder) in str(raised.value)
    assert f"process {os.getpid()}" in str(raised.value)
    with store_in(folder):
        pass


def test_a_file_system_without_locks_is_used_without_one(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def unknown(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unknown)
    with FolderLock(tmp_path), FolderLock(tmp_path):  # nothing is held
        assert (tmp_path / ".lock").read_text() == ""


# ---- folders that cannot be written


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 400 kB, and a function that mounts it anew with other options."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = lambda options: subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)], check=True, capture_output=True
    )
    try:
        mount("size=400k")
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no right to mount a small file system: {error}")
    try:
        yield disk, mount
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def fill(disk):
    with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    assert shutil.disk_usage(disk).free == 0


@pytest.fixture
def undisturbed():
    return runs.solve()


def same_end(a, b):
    for x, y in zip(jax.tree.leaves(a.state), jax.tree.leaves(b.state), strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_full_disk_does_not_stop_a_run(small_disk, undisturbed, capfd):
    disk, _ = small_disk
    folder = disk / "run"
    every = Checkpoint(folder, every_steps=20)
    runs.solve(checkpoint=every, steps=21)
    fill(disk)
    with pytest.warns(UserWarning, match="no space left") as said:
        result = runs.solve(checkpoint=every)
    same_end(result, undisturbed)
    messages = [str(one.message) for one in said]
    assert len(messages) == 2  # at step 40 and at the end
    for step, message in zip((40, 60), messages, strict=True):
        assert f"checkpoint folder {str(folder)!r} cannot be written at step {step}: no space left" in message
        assert "MB are free; the save at step 21 is kept" in message
    assert "continues and tries again" in messages[0]
    assert "the same call would resume from there" in messages[1]
    assert sorted(os.listdir(folder)) == [".lock", "20", "21"]
    gc.collect()  # futures that nobody asked for their failures tell of them now
    assert "Traceback" not in capfd.readouterr().err
    (disk / "filler").unlink()
    same_end(runs.solve(checkpoint=every), undisturbed)
    assert sorted(os.listdir(folder)) == [".lock", "40", "60"]


def test_a_disk_that_fails_once_is_tried_again(tmp_path, undisturbed, monkeypatch):
    save, failures = Store.save, iter([40])

    def fails_once(store, saved):
        if saved.step == next(failures, None):
            raise SaveError("the disk is away")
        save(store, saved)

    save_at = Checkpoint(tmp_path / "run", every_steps=20, at_end=False, keep=9)
    runs.solve(checkpoint=save_at, steps=21)
    monkeypatch.setattr(Store, "save", fails_once)
    with pytest.warns(UserWarning, match="the disk is away; the run continues"):
        runs.solve(checkpoint=save_at, steps=60)
    monkeypatch.undo()
    same_end(runs.solve(checkpoint=save_at), undisturbed)


@pytest.mark.parametrize("damaged", [False, True])
def test_a_failed_save_leaves_the_others_as_they_were(two_saves, tmp_path, monkeypatch, damaged):
    shutil.copytree(two_saves, tmp_path / "run")

    def full(path, args):
        path.with_name(f"{path.name}.orbax-checkpoint-tmp").mkdir()
        raise OSError(errno.ENOSPC, "No space left on device")

    with store_in(tmp_path / "run") as store:
        if damaged:
            (tmp_path / "run" / "40" / "about" / "metadata").unlink()
            with pytest.warns(UserWarning, match="step 20"):
                store.load(leaves(40))
        monkeypatch.setattr(store._writer, "save", full)
        with pytest.raises(SaveError, match=f"the save at step {20 if damaged else 40} is kept"):
            store.save(state_of(60))
        assert sorted(os.listdir(tmp_path / "run")) == [".lock", "20", "40"]
    with store_in(tmp_path / "empty") as store:
        monkeypatch.setattr(store._writer, "save", full)
        with pytest.raises(SaveError, match="there is no earlier one"):
            store.save(state_of(60))


@pytest.fixture
def nothing_runs(monkeypatch):
    """An error must come before anything is compiled or computed."""
    monkeypatch.setattr(loop, "drive", lambda *_: pytest.fail("the run began"))


def test_a_read_only_folder_is_refused_before_anything_runs(small_disk, nothing_runs):
    disk, mount = small_disk
    (disk / "run").mkdir()
    mount("remount,ro")
    for folder in (disk / "run", disk / "new"):
        with pytest.raises(ValueError, match=r"cannot be written .*Read-only file system") as raised:
            runs.solve(checkpoint=folder)
        assert repr(str(folder)) in str(raised.value)
    mount("remount,rw")


def test_a_folder_without_the_right_to_write_is_refused(tmp_path, nothing_runs):
    if os.getuid() == 0:
        pytest.skip("root may write everywhere")
    (tmp_path / "run").mkdir(mode=0o500)
    with pytest.raises(ValueError, match=r"cannot be written .*Permission denied"):
        runs.solve(checkpoint=tmp_path / "run")


def test_a_file_in_place_of_the_folder_is_refused(tmp_path, nothing_runs):
    (tmp_path / "run").write_text("in the way")
    with pytest.raises(ValueError, match=re.escape(f"checkpoint folder {str(tmp_path / 'run')!r} cannot be written")):
        runs.solve(checkpoint=tmp_path / "run")
    assert (tmp_path / "run").read_text() == "in the way"


# ---- the time that saves take


def test_slow_saves_are_made_less_often(tmp_path, monkeypatch):
    times = []

    def slow(store, saved):
        times.append(saved.step)
        time.sleep(0.2)

    monkeypatch.setattr(Store, "save", slow)
    # by the clock alone there would be one after every block; the one after the first is due in twenty seconds
    runs.solve(checkpoint=Checkpoint(tmp_path / "run", every_seconds=1e-6), record_every=5)
    assert len(times) == 2
    assert times[-1] == 60


# ---- killed processes

KILLED = """
import sys
import jax
jax.config.update("jax_enable_x64", True)
sys.path.insert(0, {tests!r})
import numpy as np, wior, runs
result = runs.solve(order=wior.orders.Herding(), steps={steps}, record_every=2_000,
                    checkpoint=wior.Checkpoint({folder!r}, every_steps=500))
np.savez({out!r}, *[np.asarray(leaf) for leaf in jax.tree.leaves(result.state)],
         **{{name: values for name, values in result.history.items() if name != "seconds"}})
"""


class Child:
    """A run in a process of its own; programs compiled by the first are kept for the others."""

    def __init__(self, folder, steps):
        self.folder = folder
        self.out = folder.with_suffix(".npz")
        script = KILLED.format(
            tests=str(Path(runs.__file__).parent), steps=steps, folder=str(folder), out=str(self.out)
        )
        env = os.environ | {
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": str(folder.parent / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        self.process = subprocess.Popen([sys.executable, "-c", script], env=env)

    def end(self):
        assert self.process.wait(timeout=240) == 0
        with np.load(self.out) as saved:
            return {name: saved[name] for name in saved.files}

    def wait_until(self, happens):
        deadline = time.time() + 120
        while not happens():
            assert time.time() < deadline
            assert self.process.poll() is None, "the run ended before it was killed"
            time.sleep(0.0005)

    def saved(self):
        return max((int(path.name) for path in self.folder.glob("[0-9]*") if path.name.isdigit()), default=0)

    def writing(self):
        return any(self.folder.glob("*.orbax-checkpoint-tmp*"))

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        assert self.process.wait() == -signal.SIGKILL


def killed_again_and_again(tmp_path, steps, kills, seed):
    """Kills in turn while a save is written and at any moment; then lets the run end."""
    alone = Child(tmp_path / "undisturbed", steps)
    rng = random.Random(seed)
    folder = tmp_path / "killed"
    in_mid_write = 0
    for kill in range(kills):
        child = Child(folder, steps)
        before = child.saved()
        child.wait_until(lambda child=child, before=before: child.saved() > before)
        if kill == 0:
            with pytest.raises(ValueError, match=f"in use by another run .process {child.process.pid}"):
                Store(Checkpoint(folder), {})
        if kill % 2 == 0:
            child.wait_until(child.writing)
        time.sleep(rng.uniform(0, 0.02 if kill % 2 == 0 else 0.15))
        child.kill()
        in_mid_write += child.writing()
        assert child.saved() < steps
    assert in_mid_write > 0
    undisturbed, resumed = alone.end(), Child(folder, steps).end()
    assert sorted(resumed) == sorted(undisturbed)
    for name in undisturbed:
        np.testing.assert_array_equal(resumed[name], undisturbed[name], err_msg=name)
    # nothing of all that was begun is left
    assert sorted(os.listdir(folder)) == sorted([".lock", str(steps - 500), str(steps)])


def test_a_process_killed_again_and_again_ends_with_the_same_numbers(tmp_path):
    killed_again_and_again(tmp_path, steps=6_000, kills=2, seed=0)


@pytest.mark.slow
def test_a_process_killed_twenty_times_ends_with_the_same_numbers(tmp_path):
    killed_again_and_again(tmp_path, steps=80_000, kills=20, seed=1)
