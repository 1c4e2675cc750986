"""Keras's weights in parts: an index, NAME.weights.json, and NAME_00000.weights.h5 ... beside it.

save_weights("NAME.weights.json", max_shard_size=...) writes them (keras/src/saving/saving_lib.py,
ShardedH5IOStore, 3.15). The weight map of the index has the parts of each group of variables:
{"/layers/lstm/cell/vars": ["NAME_00000.weights.h5", "NAME_00001.weights.h5"]}. Each part is a tree
with some of the variables; only the first part of a group has the attributes of the group.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from rnnlayout._files.tensor_sets.file_limits import InputFile
from rnnlayout._files.tensor_sets.file_rnns import Found, with_rnns
from rnnlayout._files.tensor_sets.weight_map import check_part_names, names_by_part, read_weight_map
from rnnlayout._model.errors import FileError
from rnnlayout._sources.tensor_paths import starting_with

from .entries import KerasEntries
from .hdf5_tree import Hdf5Group, open_hdf5

_PART = re.compile(r"(.+)_(\d{5,})\.weights\.h5")
# the end of a variable's path, after the path of its recurrent layer
_IN_LAYER = re.compile(r"(/(forward|backward)_layer)?(/cell(/.*)?)?/vars/\d+$")


@contextmanager
def open_parts(index: InputFile) -> Iterator[Hdf5Group]:
    """Yield the tree of all parts."""
    groups = _groups_by_part(index)
    parts = {name: index.companion(name) for name in groups}
    with ExitStack() as files:
        trees = []
        for name, part in parts.items():
            tree = files.enter_context(open_hdf5(part, part.budget, str(part)))
            check_part_names(index, name, _groups_with_variables(tree), groups[name])
            trees.append(tree)
        whole, *others = trees
        for tree in others:
            whole = _join_groups(whole, tree)
        yield whole


def _groups_by_part(index: InputFile) -> dict[str, list[str]]:
    """Return part -> paths of the groups with variables in the part."""
    places = [
        (group, part)
        for group, parts in read_weight_map(index).items()
        for part in (parts if isinstance(parts, list) and parts else [parts])
    ]
    return names_by_part(index, places)


def _join_groups(a: Hdf5Group, b: Hdf5Group) -> Hdf5Group:
    """Return a group of two parts. Raises FileError if both parts have a variable or attribute."""
    shared = a.datasets.keys() & {*b.datasets, *b.groups} | a.groups.keys() & b.datasets.keys()
    shared |= a.attributes.keys() & b.attributes.keys()
    if shared:
        raise FileError(f"{a.label} and {b.label} both have {min(shared)!r}")
    groups = a.groups | b.groups
    for name in a.groups.keys() & b.groups.keys():
        groups[name] = _join_groups(a.groups[name], b.groups[name])
    attributes, datasets = {**a.attributes, **b.attributes}, a.datasets | b.datasets
    return replace(a, attributes=attributes, groups=groups, datasets=datasets)


def refuse_split_rnns(
    file: InputFile, root: Hdf5Group, rnns: Found, entries: KerasEntries
) -> Found:
    """Return the RNNs of a file; of a part alone, with an error for each RNN that has variables in
    other parts too. Raises FileError if the index of a part is missing or contradicts the part."""
    name, index = file.path.name, _index_of_part(file)
    if index is None:
        if match := _PART.fullmatch(name):
            rnns.notes.append(
                f"{name} has the name of a part of Keras's weights; if it is one, the model is not"
                f" whole: pass its index, {match[1]}.weights.json"
            )
        return rnns
    parts = _groups_by_part(index)
    check_part_names(index, name, _groups_with_variables(root), parts.pop(name, []))
    elsewhere = {group: part for part, groups in parts.items() for group in groups}
    groups_elsewhere, unread = sorted(elsewhere), rnns.unread
    for rnn in rnns.names:
        layers = {_IN_LAYER.sub("/", path) for path in entries.paths_of(rnn)}
        split = (group for layer in layers for group in starting_with(groups_elsewhere, layer))
        if group := next(split, None):
            why = f"{group} is in {elsewhere[group]}, another part of the model: pass {index}"
            unread[rnn] = FileError(f"{rnn}: {why}")
    whole_rnns = {rnn: weights for rnn, weights in rnns.items() if rnn not in unread}
    if elsewhere:
        rnns.notes.append(f"{name} is a part of a model: for the whole model pass {index}")
    return with_rnns(rnns, whole_rnns, unread)


def _index_of_part(file: InputFile) -> InputFile | None:
    """Return the index of a part, None for a file that is not a part by its name. Files of epochs
    have such names too, but their numbers begin at 1, and those of parts at 0."""
    match = _PART.fullmatch(file.path.name)
    if match and file.path.with_name(index_name := f"{match[1]}.weights.json").is_file():
        return file.companion(index_name)
    if match and file.path.with_name(f"{match[1]}_00000.weights.h5").is_file():
        raise FileError(
            f"{file} is, by its name, a part of a model, and its folder lacks {index_name!r}: copy"
            f" the missing files there and pass {index_name}, or rename this file if it is a whole"
            " model"
        )
    return None


def _groups_with_variables(root: Hdf5Group) -> set[str]:
    return {dataset.path.rpartition("/")[0] or "/" for dataset in root.all_datasets()}
