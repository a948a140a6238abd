"""Features of prompts, by which prompts share what is learned about them."""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from budgetalloc.beliefs.ids import Id, Index, check_distinct, check_ids
from budgetalloc.beliefs.posterior import FloatArray
from budgetalloc.budget import IntArray
from budgetalloc.errors import InputError, check_array, check_integer, short_repr

_BUCKETS = 2**14  # hashed n-grams
_ORDERS = (1, 2, 3)  # characters of an n-gram
_LONGEST = 2000  # characters of a text that are read
_MOST_VALUES = 200  # distinct texts in one column
_MOST_FEATURES = 512
_SHRINKAGE = 1.0  # rollouts with the mean rate that are added to those of each prompt


class Features:
    """Numbers that describe each prompt: the input of the regression of `TrackingEstimator`.

    Columns are centred, and all are divided by one number, so that the mean squared norm of a row
    is 1. A prompt without features is described by zeros, as the mean prompt.

    Args:
        ids: The prompts, each once.
        values_PK: At most 512 features of each prompt, shape (P, K), finite.

    Raises:
        InputError: an id twice, another shape, a number that is not finite, or more features.

    >>> features = Features(["a", "b"], [[0.0], [3.0]])
    >>> features.of(["b", "unknown", "a"])
    array([[ 1.],
           [ 0.],
           [-1.]])
    """

    def __init__(self, ids: Iterable[Any], values_PK: ArrayLike) -> None:
        listed = check_ids(ids, "ids")
        check_distinct(listed, "ids")
        values = _rows("values_PK", values_PK, listed)
        if values.shape[1] > _MOST_FEATURES:
            wrong = f"has shape {values.shape}: give at most {_MOST_FEATURES} features."
            raise InputError("values_PK", wrong)
        centred = values - values.mean(axis=0)
        norm = float(np.sqrt((centred**2).sum(axis=1).mean())) if centred.size else 0.0
        self._index = Index(list(listed))
        self._values_PK = np.asarray(centred / norm if norm > 0 else centred, dtype=np.float32)

    def __repr__(self) -> str:
        return f"Features({len(self._index):,} prompts x {self.count})"

    @property
    def count(self) -> int:
        """K, the number of features."""
        return int(self._values_PK.shape[1])

    def of(self, ids_P: Iterable[Any]) -> FloatArray:
        """The features of these prompts, zeros for an unknown one, shape (P, K)."""
        at_P = self.places(ids_P)
        values_PK = self._values_PK[at_P].astype(np.float64)
        values_PK[at_P < 0] = 0.0
        return values_PK

    def scored(self, weights_K: FloatArray) -> FloatArray:
        """x . w of every prompt and, at the end, 0 for an unknown one:
        `scored(w)[features.places(ids)]`."""
        scores_P = self._values_PK @ weights_K.astype(np.float32)
        return np.append(scores_P, np.float32(0)).astype(np.float64)

    def places(self, ids_P: Iterable[Any]) -> IntArray:
        """The place of each prompt in `scored`, -1 if it is unknown."""
        return self._index.find(ids_P)

    @classmethod
    def joined(cls, *parts: "Features") -> "Features":
        """All features of several parts, which must describe the same prompts; each part has the
        same weight.

        >>> one, other = Features(["a", "b"], [[0.0], [3.0]]), Features(["b", "a"], [[0.0], [1.0]])
        >>> Features.joined(one, other).of(["a"]).round(2)
        array([[-0.71,  0.71]])
        """
        ids = parts[0]._index.ids
        for part in parts[1:]:
            if set(part._index.ids) != set(ids):
                what = "describe the same prompts in each part."
                raise InputError("parts", what, parts)
        return cls(ids, np.hstack([part.of(ids) for part in parts]))

    @classmethod
    def of_texts(cls, ids: Iterable[Any], texts: Sequence[str], dimensions: int = 32) -> "Features":
        """Features of the prompts' texts: latent semantic analysis of hashed n-grams of characters
        and words.

        N-grams of 1 to 3 characters and whole words are hashed into 16,384 columns, weighted by
        inverse document frequency, and reduced to their largest singular vectors. No language model
        is needed.

        Args:
            ids: The prompts, each once.
            texts: The text of each prompt. The first 2,000 characters are read.
            dimensions: Singular vectors to keep, from 1 to 512; fewer if there are fewer prompts.

        >>> features = Features.of_texts(range(40), ["add 1", "sort b"] * 20, dimensions=1)
        >>> features.of([0, 1, 2]).round(2).ravel().tolist()
        [-1.0, 1.0, -1.0]
        """
        from scipy import sparse  # only here, because scipy is slow to import
        from scipy.sparse.linalg import svds

        check_integer("dimensions", dimensions, 1, _MOST_FEATURES)
        listed = check_ids(ids, "ids")
        if len(texts) != len(listed) or not all(isinstance(text, str) for text in texts):
            raise InputError("texts", f"give a text for each of {len(listed)} prompts.", texts)
        grams_P = [_grams(text[:_LONGEST]) for text in texts]
        columns = [column for grams in grams_P for column in grams]
        rows = np.repeat(np.arange(len(listed)), [len(grams) for grams in grams_P])
        shape = (len(listed), _BUCKETS)
        table = sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), shape=shape)
        prompts_B = np.bincount(columns, minlength=_BUCKETS)
        weight_B = np.log(np.maximum(len(listed), 1) / np.maximum(prompts_B, 1)) * (prompts_B > 1)
        # Equal singular values have no vectors of their own, and a resumed run needs the same ones.
        weight_B *= np.random.default_rng(0).uniform(0.8, 1.2, _BUCKETS)
        weighted = table @ sparse.diags(weight_B)
        norm_P = np.sqrt(np.asarray(weighted.multiply(weighted).sum(axis=1)).ravel())
        weighted = sparse.diags(1 / np.maximum(norm_P, 1e-12)) @ weighted
        kept = min(dimensions, min(weighted.shape) - 1)
        if kept < 1 or not weighted.nnz:
            return cls(listed, np.zeros((len(listed), 1)))
        left, singular, right = svds(weighted, k=kept, v0=np.ones(min(weighted.shape)))
        largest = singular > 1e-3 * singular.max(initial=0.0)
        signs_K = _signs(right[largest])
        return cls(listed, np.round((left * singular)[:, largest] * signs_K, 4))

    @classmethod
    def of_vectors(
        cls, ids: Iterable[Any], vectors_PD: ArrayLike, dimensions: int = 32
    ) -> "Features":
        """The largest principal components of vectors that describe the prompts, such as
        embeddings.

        Args:
            ids: The prompts, each once.
            vectors_PD: A vector of each prompt, shape (P, D), finite.
            dimensions: Components to keep, from 1 to 512; fewer if D or the number of prompts is
                smaller.

        >>> vectors = [[1, 5, 0], [2, 5, 0], [3, 5, 0]]
        >>> features = Features.of_vectors(["a", "b", "c"], vectors, dimensions=1)
        >>> features.of(["c", "a"])[:, 0].round(2)
        array([ 1.22, -1.22])
        """
        from scipy.linalg import svd

        check_integer("dimensions", dimensions, 1, _MOST_FEATURES)
        listed = check_ids(ids, "ids")
        vectors = _rows("vectors_PD", vectors_PD, listed)
        centred = vectors - vectors.mean(axis=0)
        if not centred.any():
            return cls(listed, np.zeros((len(listed), 1)))
        # The covariance of the coordinates is small where there are many prompts.
        _, singular, right = svd(np.linalg.qr(centred, mode="r"), full_matrices=False)
        right = right[:dimensions][singular[:dimensions] > 1e-6 * singular[0]]
        return cls(listed, np.round(centred @ (right * _signs(right)[:, None]).T / singular[0], 6))

    @classmethod
    def of_columns(cls, ids: Iterable[Any], columns: Mapping[str, Sequence[Any]]) -> "Features":
        """Features from columns of a dataset: numbers by the normal score of their rank, so that
        unit and outliers do not matter; texts and flags as one column per value.

        Known pass rates, lengths, difficulties and domains are such columns. A missing number (None
        or NaN) enters as 0. The weight and the sign of each feature are learned.

        Args:
            ids: The prompts, each once.
            columns: Values of each prompt by the name of the column. At most 200 distinct texts a
                column.

        >>> columns = {"pass_rate": [0.1, 0.2, 0.9], "source": ["x", "y", "x"]}
        >>> Features.of_columns(["a", "b", "c"], columns).count
        3
        """
        listed = check_ids(ids, "ids")
        parts = [_of_column(name, list(values), len(listed)) for name, values in columns.items()]
        if not parts:
            raise InputError("columns", "name at least one column of the dataset.", columns)
        return cls(listed, np.column_stack(parts))

    @classmethod
    def of_rates(cls, ids: Iterable[Any], rates: ArrayLike, rollouts: ArrayLike = 16) -> "Features":
        """Features of success rates that are known from an earlier run or from another model: a
        warm start.

        The first feature is log(r / (1-r)), with r the rate after one rollout with the mean of all
        rates was added to the prompt's own. A prompt without a rate has the mean. If there is such
        a prompt, a second feature marks those with a rate. Their weights are learned. A rate does
        not count as evidence about its prompt.

        Args:
            ids: The prompts, each once.
            rates: The success rate of each prompt in [0, 1], None or NaN where it is not known.
            rollouts: The rollouts behind each rate, one number for all prompts or one for each; 0
                means no rate.

        >>> features = Features.of_rates(["a", "b", "c"], [0.75, 0.25, 0.5], rollouts=[4, 4, 64])
        >>> features.of(["a", "b", "c"]).round(2).ravel().tolist()
        [1.22, -1.22, 0.0]
        """
        listed = check_ids(ids, "ids")
        rates_P = check_array("rates", rates, "a rate for each prompt")
        rollouts_P = check_array("rollouts", rollouts, "a number, or one for each prompt")
        for name, given in (("rates", rates_P), ("rollouts", rollouts_P)):
            if given.shape != (len(listed),) and (name == "rates" or given.ndim):
                wrong = f"has shape {given.shape} for {len(listed)} prompts: give one number each."
                raise InputError(name, wrong)
        rollouts_P = np.broadcast_to(rollouts_P, rates_P.shape)
        sound_P = np.isfinite(rollouts_P) & (rollouts_P >= 0)
        _each(
            "rates", listed, rates_P, ~((rates_P < 0) | (rates_P > 1)), "a rate in [0, 1], or None"
        )
        _each("rollouts", listed, rollouts_P, sound_P, "a finite number >= 0")
        known_P = ~np.isnan(rates_P) & (rollouts_P > 0)
        trials_P = np.where(known_P, rollouts_P, 0.0)
        successes_P = trials_P * np.where(known_P, rates_P, 0.0)
        mean = (successes_P.sum() + 0.5) / (trials_P.sum() + 1)
        failures_P = trials_P - successes_P
        odds_P = (successes_P + _SHRINKAGE * mean) / (failures_P + _SHRINKAGE * (1 - mean))
        marks = [] if known_P.all() else [known_P]
        return cls(listed, np.column_stack([np.log(odds_P), *marks]))


def _rows(name: str, values_PK: ArrayLike, ids: list[Id]) -> FloatArray:
    """A row of finite numbers for each prompt, shape (P, K)."""
    values = check_array(name, values_PK, "a row of numbers for each prompt")
    if values.ndim != 2 or len(values) != len(ids):
        wrong = f"has shape {values.shape} for {len(ids)} prompts: give a row of numbers for each."
        raise InputError(name, wrong)
    _each(name, ids, values, np.isfinite(values).all(axis=1), "finite numbers")
    return values


def _each(name: str, ids: list[Id], values_P: FloatArray, sound_P: Any, what: str) -> None:
    """Raises `InputError` with the first prompt whose values are not sound."""
    if not sound_P.all():
        at = int(np.argmin(sound_P))
        wrong = values_P[at].tolist()
        raise InputError(name, f"of prompt {ids[at]!r} is {short_repr(wrong)}: give {what}.")


def _signs(right_KD: FloatArray) -> FloatArray:
    """1 or -1 for each singular vector, which has no sign of its own: its largest entry becomes
    positive."""
    return np.asarray(np.sign(right_KD[np.arange(len(right_KD)), np.abs(right_KD).argmax(axis=1)]))


def _grams(text: str) -> list[int]:
    """The hashed n-grams of the characters of a text with marks for its ends, and its words."""
    marked = f"\x02{text}\x03"
    grams = {marked[at : at + n] for n in _ORDERS for at in range(len(marked) - n + 1)}
    grams |= {f"\x01{word}" for word in text.split()}
    return sorted({zlib.crc32(gram.encode()) % _BUCKETS for gram in grams})


def _of_column(name: str, values: list[Any], prompts: int) -> FloatArray:
    """The features of one column, shape (P, k), each with a standard deviation of about 1."""
    column = f"columns[{name!r}]"
    if len(values) != prompts:
        raise InputError(column, f"has {len(values)} values for {prompts} prompts: give one each.")
    known = [x for x in values if x is not None]
    number, flag = (int, float, np.integer, np.floating), (bool, np.bool_)
    if all(isinstance(x, number) and not isinstance(x, flag) for x in known):
        return _normal_scores(np.array([np.nan if x is None else float(x) for x in values]))
    if not all(isinstance(x, (str, *flag)) for x in known):
        raise InputError(column, f"holds {short_repr(known[0])}: use numbers, texts or flags.")
    kinds = sorted({str(x) for x in known})
    if len(kinds) > _MOST_VALUES:
        raise InputError(
            column,
            f"has {len(kinds)} distinct texts, at most {_MOST_VALUES} are possible: use a column "
            "of categories, or the features of the texts.",
        )
    indicator = np.zeros((prompts, max(len(kinds), 1)))
    for row, value in enumerate(values):
        if value is not None:
            indicator[row, kinds.index(str(value))] = 1.0
    return indicator


def _normal_scores(numbers_P: FloatArray) -> FloatArray:
    """The normal quantile of each number's mean rank, shape (P, 1); equal numbers have equal
    scores, and missing ones 0."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    scores_P, seen = np.zeros(len(numbers_P)), np.isfinite(numbers_P)
    if seen.any():
        scores_P[seen] = ndtri((rankdata(numbers_P[seen]) - 0.5) / seen.sum())
    return scores_P[:, None]
