"""What is wrong is said in a sentence that names the argument and the remedy, before anything is compiled."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.sparse

import wior
from wior import checks, orders

A = np.random.default_rng(0).normal(size=(12, 3))
B = np.arange(12.0)


def loss(x, y, batch):
    return jnp.mean((batch[0] @ y - batch[1]) ** 2) + jnp.sum(x * x) * jnp.sum(y * y)


def problem(outer=loss, inner=loss, outer_data=(A, B), inner_data=(A, B)):
    return wior.Bilevel(outer, inner, outer_data, inner_data)


def solved(x0, y0, **settings):
    return wior.solve(problem(), wior.WiORBO(0.01, 0.01, 0.01), x0, y0, batch_size=4, steps=2, **settings)


def says(*parts, error=TypeError):
    """Expects an error whose message has all of these parts, in this order."""
    return pytest.raises(error, match="(?s)" + ".*".join(map(re.escape, parts)))


class Tensor:
    """As those of torch: an array by its protocol, which jax does not take for one."""

    def __init__(self, values, elsewhere=False):
        self.values, self.elsewhere = np.asarray(values), elsewhere
        self.shape, self.dtype = self.values.shape, "torch.float32"

    def __array__(self, dtype=None, copy=None):
        if self.elsewhere:
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        return self.values

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return Tensor(self.values[index])

    def numpy(self):
        return self.values


Tensor.__module__ = "torch"


class DataLoader:
    dataset, batch_size = A, 32

    def __iter__(self):
        return iter([A])

    def __len__(self):
        return 1


class Iterable:
    def __iter__(self):
        return iter([A])


class Dataset:
    """As those of Hugging Face: columns as lists, unless another format is asked for, and one of texts."""

    def __init__(self, kind=None, columns=("image", "label", "text")):
        self.format, self.column_names = {"type": kind, "columns": list(columns)}, columns

    def with_format(self, kind, columns=None):
        return Dataset(kind, columns or ("image", "label", "text"))

    def __len__(self):
        return 12

    def __getitem__(self, numbers):
        whole = {"image": A, "label": B, "text": np.array(["a"] * 12)}
        rows = {name: whole[name][numbers] for name in self.column_names}
        return rows if self.format["type"] else jax.tree.map(np.ndarray.tolist, rows)


class DataFrame:
    """As those of pandas."""

    columns = ("age", "name", "city")

    def __init__(self, *dtypes):
        self.dtypes = [np.dtype(one) for one in dtypes]
        self.shape = (12, 3)

    def __array__(self, dtype=None, copy=None):
        return A

    def to_numpy(self):
        return A


@jax.tree_util.register_pytree_with_keys_class
class Module:
    """As those of equinox: a tree with functions among its leaves."""

    def __init__(self, weight, activation):
        self.weight, self.activation = weight, activation

    def tree_flatten_with_keys(self):
        key = jax.tree_util.GetAttrKey
        return ((key("weight"), self.weight), (key("activation"), self.activation)), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


class Opaque:
    """As modules of flax that are no trees."""


def test_a_module_as_a_variable():
    with says("y0.weight is of type str", "eqx.partition(model, eqx.is_inexact_array)", "nnx.split"):
        solved(jnp.ones(2), Module("no array", jax.nn.relu))
    with says("x0 is of type Opaque", "eqx.partition", "nnx.split"):
        solved(Opaque(), jnp.ones(3))
    with says("x0['a'] is of type ndarray", "its dtype is <U2"):
        solved({"a": np.array(["no"])}, jnp.ones(3))


def test_torch_tensors():
    with says("x0 is a torch Tensor", ".numpy()"):
        solved(Tensor([1.0, 2.0]), jnp.ones(3))
    with says("y0['w'] is a torch Tensor", ".numpy()"):
        solved(jnp.ones(2), {"w": Tensor([1.0, 2.0])})
    with says("outer_data[1] is a torch Tensor", ".numpy()"):
        problem(outer_data=(A, Tensor(B, elsewhere=True)))
    assert problem(outer_data=(A, Tensor(B))).sizes()["outer"] == 12


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (iter([A]), "an iterator (list_iterator)"),
        ((row for row in A), "an iterator (generator)"),
        (Iterable(), "a Iterable, which can only be iterated over"),
        (loss, "a function, loss"),
    ],
    ids=["iterator", "generator", "iterable", "function"],
)
def test_data_that_cannot_be_read_by_numbers(data, what):
    remedy = "give the data set that it goes through: arrays with one row for each example, or an object with a length"
    with says(f"inner_data is {what}", "an order needs to choose which example comes next", remedy):
        problem(inner_data=data)


def test_a_loader_is_refused_and_its_data_set_named():
    remedy = "give the data set and not the loader: its .dataset, and batch_size=32 to wior.solve"
    with says("inner_data is a DataLoader", "an order needs to choose which example comes next", remedy):
        problem(inner_data=DataLoader())


def test_what_has_no_length_or_only_names():
    class Endless:
        def __getitem__(self, number):
            return A[number]

    class IterableDataset:
        """As that of torch: it has the method of a data set, which only raises."""

        def __getitem__(self, number):
            raise NotImplementedError

        def __iter__(self):
            return iter(A)

        def __len__(self):
            return 12

    class Splits(dict):
        """As the dictionaries of Hugging Face, which have a shape too."""

        shape = ()

    with says("inner_data is a Endless, which has no length; give it a __len__, the number of its examples"):
        problem(inner_data=Endless())
    with says("inner_data is a IterableDataset, which can only be iterated over"):
        problem(inner_data=IterableDataset())
    with says("inner_data is a Splits with the keys ['train', 'test'], which is no tree of arrays; give one of its"):
        problem(inner_data=Splits(train=A, test=A))


def test_columns_that_are_no_numbers():
    with says(
        "inner_data is a Dataset whose columns ['text'] are no numbers of one shape",
        ".select_columns(['image', 'label'])",
    ):
        problem(inner_data=Dataset())
    assert problem(inner_data=Dataset(None, ("image", "label"))).sizes()["inner"] == 12


def test_lists_of_numbers():
    with says("x0 is a list of numbers, [1.0, 2.0]", "jnp.asarray"):
        solved([1.0, 2.0], jnp.ones(3))
    with says("y0['w'] is a list of numbers, [[1, 2], [3, 4]]", "jnp.asarray"):
        solved(jnp.ones(2), {"w": [[1, 2], [3, 4]]})
    with says("outer_data[1] is a list of numbers", "np.asarray"):
        problem(outer_data=(A, B.tolist()))
    assert jax.tree.structure(checks.floating("x0", [np.ones(2), np.ones(3)])) == jax.tree.structure([0, 0])


@pytest.mark.parametrize("kind", [scipy.sparse.csr_matrix, scipy.sparse.csr_array, scipy.sparse.coo_array])
def test_sparse_matrices(kind):
    with says("outer_data[0] is a sparse matrix", kind.__name__, ".toarray()", "wior.streaming.Streamed"):
        problem(outer_data=(kind(A), B))
    with says("x0 is a sparse matrix", kind.__name__, ".toarray()"):
        solved(kind(A), jnp.ones(3))


def test_sparse_matrices_of_jax():
    class Sparse(Module):
        def todense(self):
            return A

    jax.tree_util.register_pytree_with_keys_class(Sparse)
    # a tree whose leaves have rows of their own, which are no examples
    with says("inner_data is a sparse matrix (Sparse)", ".todense()"):
        problem(inner_data=Sparse(A, B))


def test_losses_of_wrong_arity():
    with says("inner is called as inner(x, y, batch), and the function given is two(y, batch)"):
        problem(inner=lambda_named_two)
    with says("objective is called as objective(x, y, batch)"):
        wior.Minimax(lambda x, y: 0.0, A)
    with says("outer is called as outer(y, batch)", "<lambda>(x, y, batch)"):
        wior.Compositional(lambda x, y, batch: 0.0, lambda x, batch: x, A, A)
    with says("represent is called as represent(x, rows)"):
        wior.ConditionalBilevel(loss, loss, A, np.ones((12, 2, 3)), represent=lambda x: x)
    problem(inner=lambda *arguments: loss(*arguments), outer=jax.jit(loss))


def lambda_named_two(y, batch):
    return 0.0


lambda_named_two.__name__ = "two"


def test_metrics_of_wrong_arity():
    with says("metrics is called as metrics(x, y), and the function given is <lambda>(state)"):
        checks.metrics_arity(lambda state: {})
    checks.metrics_arity(lambda x, y, more=1: {})


def test_a_loss_for_each_example():
    each = lambda x, y, batch: (batch[0] @ y - batch[1]) ** 2
    with says("inner must return one number", "a batch of 5 rows", "shape (5,)", "take the mean", error=ValueError):
        problem(inner=each).check(jnp.ones(2), jnp.ones(3), (4, 5))
    mapped = wior.Compositional(lambda y, batch: jnp.sum(y), lambda x, batch: batch * x, A, A)
    with says("inner must return the mean", "a batch of 5 rows", "[5, 3]", "axis=0", error=ValueError):
        mapped.check(jnp.ones(3), jnp.ones(3), (4, 5))


@pytest.mark.parametrize(
    "schedule",
    [lambda step: 0.1 if step < 100 else 0.01, lambda step: np.sqrt(step + 1.0), lambda step: [0.1, 0.01][step // 100]],
    ids=["if", "numpy", "list"],
)
def test_a_schedule_that_cannot_be_compiled(schedule):
    with says("inner_lr is a schedule that asks for the value of the step", "jnp.where", "optax.join_schedules"):
        wior.WiORBO(0.1, schedule, 0.1)


def test_schedules_that_can():
    with says("outer_lr is called as outer_lr(step)"):
        wior.WiORBO(lambda: 0.1, 0.1, 0.1)
    wior.WiORBO(optax.cosine_decay_schedule(0.1, 10), lambda step: jnp.where(step < 100, 0.1, 0.01), lambda step: 0.1)


def test_an_integer_as_key():
    with says("key must be a key of jax.random, for example jax.random.key(3); got 3 of type int"):
        orders.RandomReshuffling().examples(3, 0, 4, 12)


def test_no_outer_data():
    with says("outer_data is None", "np.zeros((1, 1))", error=ValueError):
        wior.Bilevel(loss, loss, None, A)
    with says("inner_data is None", "np.zeros((1, 1))", error=ValueError):
        wior.Compositional(lambda y: jnp.sum(y), lambda x, batch: x, None, None)
    with says("outer is called as outer(y)"):
        wior.Compositional(lambda y, batch: jnp.sum(y), lambda x, batch: x, None, A)


def test_tables_with_text():
    with says("inner_data is a DataFrame whose columns ['name', 'city'] do not hold numbers", ".to_numpy()"):
        problem(inner_data=DataFrame(float, object, "U3"))
    with says("x0 is a DataFrame; give the array .to_numpy()"):
        solved(DataFrame(float, int, bool), jnp.ones(3))
    assert problem(inner_data=(DataFrame(float, int, bool), B)).sizes()["inner"] == 12


def test_orders_by_name():
    for name, order in orders.BY_NAME.items():
        assert orders.named("order", name) is orders.named("order", name.replace("-", "_")) is order
        assert orders.named("order", order) is order
    with says("order must be one of 'independent'", "'random-reshuffling'", "got 'shuffled'", error=ValueError):
        orders.named("order", "shuffled")
    with says("order must be one of wior.orders", "did you mean FlipFlop()?"):
        orders.named("order", orders.FlipFlop)
    with says("order must be one of wior.orders", "got 3 of type int"):
        orders.named("order", 3)


def knows_its_rows(rows):
    return lambda x, y, batch: loss(x, y, (batch[0].reshape(rows, 3), batch[1].reshape(rows)))


SETS = np.ones((12, 6, 3)), np.ones((12, 6))
# problems whose losses take 4 outer and 5 inner rows alone
KNOWING = {
    "bilevel": lambda: problem(knows_its_rows(4), knows_its_rows(5)),
    "minimax": lambda: wior.Minimax(knows_its_rows(4), (A, B)),
    "compositional": lambda: wior.Compositional(
        lambda y, batch: jnp.sum(y) + jnp.sum(batch.reshape(4, 3)), lambda x, b: jnp.mean(b.reshape(5, 3), 0), A, A
    ),
    "conditional": lambda: wior.ConditionalBilevel(knows_its_rows(1), knows_its_rows(5), (A, B), SETS),
    # what is represented is all rows of the inner sets of a batch together
    "represented": lambda: wior.ConditionalBilevel(
        lambda seen, y, batch: loss(seen.reshape(1), y, batch),
        lambda seen, y, batch: loss(seen.reshape(5), y, (batch[0].reshape(5, 3), batch[1])),
        (A, B),
        SETS,
        represent=lambda x, rows: rows[1].reshape(4 * 6),
        represent_outer=lambda x, rows: rows[1].reshape(4),
    ),
}


@pytest.mark.parametrize("name", KNOWING)
def test_losses_are_traced_with_the_batch_sizes_of_the_run(name):
    knowing, x, y = KNOWING[name](), jnp.ones(2), jnp.ones(3)
    assert knowing.check(x, y, (4, 4) if name == "minimax" else (4, 5)) is None
    with pytest.raises(TypeError, match="reshape"):
        knowing.check(x, y, (3, 3))


def test_rows_for_each_example_meet_batches_of_the_right_size():
    x = wior.PerExample(jnp.ones(12))
    weighted = lambda x, y, batch: jnp.mean(x.reshape(5) * (batch[0] @ y - batch[1]) ** 2)
    problem(lambda x, y, batch: loss(jnp.ones(2), y, batch), weighted).check(x, jnp.ones(3), (4, 5))
    with says("outer uses the PerExample leaf x0", "Let only inner depend on it"):
        problem(lambda x, y, b: jnp.mean(x.reshape(4) * b[1]), weighted).check(x, jnp.ones(3), (4, 5))


def test_the_calls_of_losses_have_batches_of_these_sizes():
    calls = problem().loss_calls(jnp.ones(2), jnp.ones(3), (4, 5))
    assert {name: args[-1].data[1].shape for name, (_, args) in calls.items()} == {"outer": (4,), "inner": (5,)}
    assert all(len(args[-1].examples) == 2 for _, args in problem().loss_calls(jnp.ones(2), jnp.ones(3)).values())
    cut = wior.problems.fixed_batches.InFixedBatches(problem(), (4, 6)).loss_calls(jnp.ones(2), jnp.ones(3), (1, 1))
    assert [args[-1].data[1].shape for _, args in cut.values()] == [(4,), (6,)]


def test_a_loss_that_knows_its_batch_size_is_solved():
    own = problem(knows_its_rows(4), knows_its_rows(6))
    result = wior.solve(own, wior.WiORBO(0.01, 0.01, 0.01), jnp.ones(2), jnp.ones(3), batch_size=(4, 6), steps=3)
    plain = wior.solve(problem(), wior.WiORBO(0.01, 0.01, 0.01), jnp.ones(2), jnp.ones(3), batch_size=(4, 6), steps=3)
    np.testing.assert_array_equal(result.x, plain.x)
    with pytest.raises(TypeError, match="reshape"):
        wior.solve(own, wior.WiORBO(0.01, 0.01, 0.01), jnp.ones(2), jnp.ones(3), batch_size=3, steps=3)


def with_nan(rows):
    spoilt = A.copy()
    spoilt[rows, 1] = np.nan
    return spoilt


def test_nan_in_the_data_is_not_blamed_on_a_step_size():
    one, two = (with_nan([7]), B), (with_nan([2, 9]), B)
    message = "the data are not finite: outer_data[0] has NaN or infinity in 2 rows (2, 9); inner_data[0] has NaN or infinity in 1 row (7)"
    with says(message, "no step size helps", error=wior.NonFiniteError):
        wior.solve(problem(outer_data=two, inner_data=one), STEP, jnp.ones(2), jnp.ones(3), batch_size=4, steps=9)


def test_nan_in_streamed_data(tmp_path):
    np.save(tmp_path / "rows.npy", with_nan([7]))
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    with says("inner_data[0] has NaN or infinity in 1 row (7)", "no step size helps", error=wior.NonFiniteError):
        wior.solve(problem(inner_data=(rows, B)), STEP, jnp.ones(2), jnp.ones(3), batch_size=4, steps=9)


def test_nan_in_fixed_batches():
    with says("inner_data[0] has NaN or infinity in 1 row (7)", error=wior.NonFiniteError):
        wior.solve(
            problem(inner_data=(with_nan([7]), B)),
            wior.baselines.SABA(0.01, 0.01, 0.01),
            jnp.ones(2),
            jnp.ones(3),
            batch_size=4,
            steps=9,
        )


STEP = wior.WiORBO(0.01, 0.01, 0.01)


def conditional():
    sets = A[:, None] + 0.1 * np.arange(6.0)[:, None], B[:, None] + np.zeros((12, 6))
    inner = lambda x, y, b: jnp.mean((b[0] @ y - b[1]) ** 2) + jnp.sum((x - 1) ** 2) * jnp.sum(y * y)
    return wior.ConditionalBilevel(loss, inner, (A, B), sets)


@pytest.mark.parametrize("inner_lr", [3.0, 1e15])
@pytest.mark.parametrize("method", [wior.WiORCBO, wior.baselines.DLSGD])
def test_an_inner_step_that_is_too_large_is_not_blamed_on_the_outer_one(method, inner_lr):
    def run(outer_lr, inner_lr):
        own = method(outer_lr, inner_lr, 0.01)
        wior.solve(conditional(), own, jnp.ones(2), jnp.ones(3), batch_size=(4, 3), steps=400)

    message = "inner steps diverge at x0 already", "an inner step size that is too large", f"(inner_lr={inner_lr!r})"
    with says(*message, error=wior.NonFiniteError):
        run(1e-4, inner_lr)
    with says("a step size that is too large", "(outer_lr=1e+30)", error=wior.NonFiniteError):
        run(1e30, 0.01)


def test_a_variable_that_cannot_move_is_said_before_the_run():
    accuracy = lambda x, y, b: jnp.mean((b[0] @ y > b[1]).astype(float))
    with pytest.warns(UserWarning, match=r"x0 cannot move: .*has no derivative in y"):
        wior.solve(problem(outer=accuracy), STEP, jnp.ones(2), jnp.ones(3), batch_size=4, steps=2)
    y0 = {"weights": jnp.ones(3), "running_mean": jnp.zeros(3)}
    of = lambda x, y, b: loss(x, y["weights"], b)
    with pytest.warns(UserWarning, match=r"y0\['running_mean'\] cannot move: inner does not depend on it") as warned:
        wior.solve(problem(of, of), STEP, jnp.ones(2), y0, batch_size=4, steps=2)
    assert warned[0].filename == __file__  # the line of the call


def test_another_runs_folder_is_refused_by_a_public_name(tmp_path):
    solved(jnp.ones(2), jnp.ones(3), checkpoint=tmp_path / "run")
    with says("belongs to another run", error=wior.AnotherRunError) as raised:
        solved(jnp.zeros(2), jnp.ones(3), checkpoint=tmp_path / "run")
    assert raised.type.__name__ == "AnotherRunError"


def test_orders_by_name_in_a_run():
    by_name = solved(jnp.ones(2), jnp.ones(3), order=("shuffle-once", "flip_flop"))
    by_value = solved(jnp.ones(2), jnp.ones(3), order=(orders.ShuffleOnce(), orders.FlipFlop()))
    np.testing.assert_array_equal(by_name.x, by_value.x)


def test_nan_that_a_loss_masks_is_not_blamed():
    masked = lambda x, y, b: loss(x, y, (jnp.where(jnp.isnan(b[0]), 0.0, b[0]), b[1]))
    data = (with_nan([7]), B)
    own = problem(masked, masked, outer_data=data, inner_data=data)
    with says("a step size that is too large", error=wior.NonFiniteError) as raised:
        wior.solve(own, wior.WiORBO(1e3, 1e3, 1e3), jnp.ones(2), jnp.ones(3), batch_size=4, steps=900)
    assert "not finite:" not in str(raised.value)


@pytest.mark.parametrize("method", [wior.baselines.F2SA, wior.baselines.BOME, wior.baselines.MEHA])
def test_penalty_methods_move_what_only_the_outer_loss_uses(method):
    outer = lambda x, y, b: jnp.mean((b[0] @ y["a"] + y["c"] - b[1]) ** 2)
    inner = lambda x, y, b: loss(x, y["a"], b)
    rates = {name: 0.01 for name, field in method.__dataclass_fields__.items() if name.endswith("_lr")}
    y0 = {"a": jnp.ones(3), "c": jnp.zeros(())}
    found = wior.solve(problem(outer, inner), method(**rates), jnp.ones(2), y0, batch_size=4, steps=6)
    assert float(jnp.abs(found.y["c"])) > 0
