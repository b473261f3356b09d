# saving.py - commits to a checkpoint while another process saves into it
# SPDX-License-Identifier: Apache-2.0
"""CHECKPOINT ROUNDS PATH: a process saves every 10 ms into the checkpoint: new files
and directories, files that it replaces, a log, and it removes old ones. This
one commits a new value of PATH as often as told. Afterwards everything that was saved
is there, and so is the value of the last commit that succeeded."""
import errno
import multiprocessing
import os
import pathlib
import random
import sys
import time

import optimfs

checkpoint = pathlib.Path(sys.argv[1])
rounds = int(sys.argv[2])
path = sys.argv[3]
top = checkpoint if checkpoint.is_dir() else checkpoint.parent


def replace(path, text):
    new = path.with_name(path.name + ".tmp")
    new.write_text(text)
    os.rename(new, path)


class Trainer:
    """What it has saved is in self.saved. It repeats what meets ENOENT, or ENOTEMPTY
    where it removes a directory, as an exchange takes new files away for a moment."""

    def __init__(self, ledger):
        self.saved, self.lines, self.n, self.ledger = {}, 0, 0, ledger
        self.rng = random.Random(1)

    def new_file(self):
        name = f"note-{self.n}"
        (top / name).write_text(name)
        self.saved[name] = name

    def new_directory(self):
        directory = top / f"step-{self.n}"
        directory.mkdir(exist_ok=True)
        for rank in range(2):
            (directory / f"rank{rank}").write_text(f"{self.n}")
            self.saved[f"{directory.name}/rank{rank}"] = f"{self.n}"

    def latest(self):
        replace(top / "latest-note", f"{self.n}")
        self.saved["latest-note"] = f"{self.n}"

    def log(self):
        with open(top / "log-of-trainer", "a") as f:
            f.write(f"line {self.n}\n")
        self.lines += 1

    def kept(self, prefix):
        return [name for name, text in self.saved.items()
                if name.startswith(prefix) and text is not None]

    def rotate(self):
        """As trainers do: a commit that carries over whatever was ever saved would
        take longer with each round, and meet more of it."""
        for name in self.kept("note-")[:-3]:
            (top / name).unlink()
            self.saved[name] = None
        for name in self.kept("step-")[:-6:2]:
            self.remove_directory(top / name.split("/")[0])

    def remove_directory(self, directory):
        for rank in range(2):
            (directory / f"rank{rank}").unlink(missing_ok=True)
        directory.rmdir()
        for rank in range(2):
            self.saved[f"{directory.name}/rank{rank}"] = None

    def step(self):
        act = self.rng.choice([self.new_file, self.new_directory, self.latest,
                               self.log, self.rotate])
        for _ in range(1000):
            try:
                return act()
            except OSError as e:
                if e.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                    raise
                self.ledger["repeated"] = self.ledger.get("repeated", 0) + 1
        raise SystemExit(f"{act.__name__} never succeeds")

    def run(self, stop):
        while not stop.is_set():
            self.n += 1
            self.step()
            time.sleep(0.01)
        self.ledger["saved"] = self.saved
        self.ledger["lines"] = self.lines
        self.ledger["n"] = self.n


def commit(value):
    """True: committed; False: refused, because another program saves."""
    try:
        with optimfs.edit(str(checkpoint)) as ck:
            ck[path] = value
    except optimfs.Error as e:
        if "OFS805" in str(e) or "OFS75" in str(e):
            return False
        raise
    return True


def check(ledger):
    lost = []
    for name, text in ledger["saved"].items():
        saved = top / name
        if text is None:
            if saved.exists():
                lost.append(f"{name} was removed, and is back")
        elif not saved.exists() or saved.read_text() != text:
            lost.append(f"{name} is lost, or old")
    logs = list(top.glob("log-of-trainer*"))
    lines = sum(len(p.read_text().splitlines()) for p in logs)
    if lines != ledger["lines"]:
        lost.append(f"{ledger['lines'] - lines} lines of the log are lost")
    return lost


def main():
    manager = multiprocessing.Manager()
    ledger, stop = manager.dict(), manager.Event()
    trainer = multiprocessing.Process(target=Trainer(ledger).run, args=(stop,))
    trainer.start()
    value, refused = None, 0
    for i in range(rounds):
        new = 0.5 + i / 65536
        if commit(new):
            value = new
        else:
            refused += 1
    stop.set()
    trainer.join()
    lost = check(ledger)
    with optimfs.open(str(checkpoint)) as ck:
        now = float(ck[path])
    if value is not None and now != value:
        lost.append(f"the value is {now}, not {value}")
    print(f"{rounds} commits, {refused} refused, {ledger['n']} saves, "
          f"{ledger.get('repeated', 0)} repeated")
    for line in lost:
        print(line)
    return 1 if lost or trainer.exitcode else 0


sys.exit(main())
