"""Calls of SciPy, scikit-learn and einops on arrays that a function `of` makes, and what these packages cannot do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import einops.array_api
import numpy as np
import scipy.constants
import scipy.optimize.elementwise
from scipy import differentiate, fft, integrate, interpolate, linalg, ndimage, optimize, signal, special, stats
from scipy.cluster import hierarchy, vq
from scipy.spatial.transform import Rotation
from sklearn import metrics, mixture, naive_bayes, preprocessing
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import (
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    RidgeClassifier,
    RidgeClassifierCV,
    RidgeCV,
)
from sklearn.metrics import pairwise
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.utils import check_array
from sklearn.utils.extmath import randomized_range_finder, randomized_svd

Of = Callable[[np.ndarray], Any]
Call = Callable[[Of], Any]

_GENERATOR = np.random.default_rng(0)
X = _GENERATOR.normal(size=(60, 5))
Y = X @ _GENERATOR.normal(size=5) + 0.1 * _GENERATOR.normal(size=60)
LINE, OTHER = X[:, 0].copy(), X[:, 1].copy()
POSITIVE = np.abs(X) + 0.1
SHARES = POSITIVE / (1 + POSITIVE)
TRUTHS = (Y > 0).astype(np.int64)
GUESSES = (Y + _GENERATOR.normal(size=60) > 0).astype(np.int64)
SCORES = special.expit(Y + _GENERATOR.normal(size=60))
CLASSES, OTHERS = _GENERATOR.integers(0, 3, (2, 60))
LABELS, GUESSED = ((X[:, :3] + shift > 0).astype(np.int64) for shift in (0, 0.5))
IMAGES = _GENERATOR.normal(size=(4, 3, 6, 8))


def seeded() -> np.random.Generator:
    return np.random.default_rng(1)


def calls(module: Any, arrays: dict[str, tuple[np.ndarray, ...]], **options: Any) -> dict[str, Call]:
    """Calls of functions of a module, by their names, on arrays."""

    def call(name: str, given: tuple[np.ndarray, ...], of: Of) -> Any:
        return getattr(module, name)(*map(of, given), **options)

    return {name: partial(call, name, given) for name, given in arrays.items()}


def named(names: str, *arrays: np.ndarray) -> dict[str, tuple[np.ndarray, ...]]:
    return dict.fromkeys(names.split(), arrays)


def both(result: Any) -> tuple[Any, Any]:
    """Return the statistic and the p-value of a test."""
    return result.statistic, result.pvalue


SPECIAL = calls(
    special,
    {
        **named("erf erfc erfcx expit exp2 exp10 exprel sinc sindg cosdg tandg cosm1 cbrt ndtr log_ndtr gammasgn", X),
        **named("gamma gammaln loggamma rgamma psi spence exp1 expi zetac cotdg entr", POSITIVE),
        **named("i0 i0e i1 i1e j0 j1 k0 k0e k1 k1e y0 y1", POSITIVE),
        **named("logit ndtri erfinv ellipk ellipkm1", SHARES),
        **named("xlogy xlog1py boxcox boxcox1p gammainc gammaincc poch betaln", POSITIVE, POSITIVE),
        **named("rel_entr kl_div", POSITIVE, POSITIVE + 1),
        **named("huber pseudo_huber stdtr", POSITIVE, X),
        **named("chdtr chdtrc binom", POSITIVE * 3, POSITIVE),
        **named("chdtri gammaincinv gammainccinv stdtrit", POSITIVE * 3, SHARES),
        **named("inv_boxcox inv_boxcox1p", SHARES, POSITIVE),
        **named("pdtr pdtrc", np.floor(POSITIVE * 3), POSITIVE),
        **named("zeta", POSITIVE + 1, POSITIVE),
        **named("betainc betaincc betaincinv fdtri", POSITIVE, POSITIVE, SHARES),
        **named("fdtr fdtrc gdtr gdtrc", POSITIVE, POSITIVE, POSITIVE),
        **named("hyp1f1", POSITIVE, POSITIVE, X),
        **named("logsumexp softmax log_softmax", X),
    },
) | {
    "polygamma": lambda of: special.polygamma(1, of(POSITIVE)),
    "multigammaln": lambda of: special.multigammaln(of(POSITIVE + 3), 2),
    "logsumexp with weights": lambda of: special.logsumexp(of(X), b=of(POSITIVE), axis=0, return_sign=True),
}

STATS = (
    calls(
        stats,
        {
            **named("skew kurtosis zscore sem iqr median_abs_deviation tmean tvar tstd tsem tmin tmax rankdata", X),
            **named("differential_entropy", X),
            **named("gmean hmean variation gstd gzscore circmean circvar circstd entropy", POSITIVE),
            **named("kstat kstatvar lmoment", LINE),
            **named("false_discovery_control", SHARES),
            **named("zmap", X[:3], X),
        },
    )
    | {
        name: lambda of, name=name: both(getattr(stats, name)(of(LINE)))
        for name in ("jarque_bera", "normaltest", "skewtest", "kurtosistest", "wilcoxon")
    }
    | {
        name: lambda of, name=name: both(getattr(stats, name)(of(LINE), of(OTHER)))
        for name in (
            *("ttest_ind", "ttest_rel", "pearsonr", "spearmanrho", "chatterjeexi", "mannwhitneyu", "kruskal"),
            *("f_oneway", "bartlett", "levene", "fligner", "ansari", "mood", "brunnermunzel", "alexandergovern"),
            *("cramervonmises_2samp", "epps_singleton_2samp"),
        )
    }
    | {
        "moment": lambda of: stats.moment(of(X), 3),
        "pmean": lambda of: stats.pmean(of(POSITIVE), 2),
        "trim_mean": lambda of: stats.trim_mean(of(LINE), 0.1),
        "mode": lambda of: tuple(stats.mode(of(CLASSES))),
        "quantile": lambda of: stats.quantile(of(LINE), of(np.array([0.1, 0.5, 0.9]))),
        "sigmaclip": lambda of: stats.sigmaclip(of(LINE), 1.5, 1.5).clipped,
        "describe": lambda of: stats.describe(of(X))[2:],
        "friedmanchisquare": lambda of: both(stats.friedmanchisquare(of(LINE), of(OTHER), of(Y))),
        "ttest_1samp": lambda of: both(stats.ttest_1samp(of(X), 0.1)),
        "ks_1samp": lambda of: both(stats.ks_1samp(of(LINE), special.ndtr)),
        "cramervonmises": lambda of: both(stats.cramervonmises(of(LINE), special.ndtr)),
        "chisquare": lambda of: both(stats.chisquare(of(POSITIVE[:, 0]))),
        "power_divergence": lambda of: both(stats.power_divergence(of(POSITIVE[:, 0]), lambda_="cressie-read")),
        "combine_pvalues": lambda of: both(stats.combine_pvalues(of(SHARES[:, 0]))),
        "directional_stats": lambda of: stats.directional_stats(of(X)).mean_direction,
        "boxcox_llf": lambda of: stats.boxcox_llf(0.5, of(POSITIVE)),
        "yeojohnson_llf": lambda of: stats.yeojohnson_llf(0.5, of(X)),
    }
)

CLUSTER: dict[str, Call] = {
    "whiten": lambda of: vq.whiten(of(X)),
    "vq": lambda of: vq.vq(of(X), of(X[:3])),
    "kmeans": lambda of: vq.kmeans(of(X), of(X[:3])),
    "kmeans from a number": lambda of: vq.kmeans(of(X), 3, rng=seeded()),
    "kmeans2": lambda of: vq.kmeans2(of(X), of(X[:3]), minit="matrix"),
    "kmeans2 from a number": lambda of: vq.kmeans2(of(X), 3, minit="++", rng=seeded()),
    "linkage": lambda of: hierarchy.linkage(of(X[:8]), "ward"),
    "fcluster": lambda of: hierarchy.fcluster(hierarchy.linkage(of(X[:8]), "single"), 2, "maxclust"),
    "cophenet": lambda of: hierarchy.cophenet(hierarchy.linkage(of(X[:8]), "single")),
}

_B, _A = signal.butter(3, 0.2)
_SECTIONS = signal.butter(3, 0.2, output="sos")
SIGNAL: dict[str, Call] = {
    "detrend": lambda of: (signal.detrend(of(LINE)), signal.detrend(of(X), axis=0, type="constant")),
    "convolve": lambda of: signal.convolve(of(LINE), of(OTHER[:5]), method="direct"),
    "correlate": lambda of: signal.correlate(of(LINE), of(OTHER[:5]), method="direct"),
    "convolve2d": lambda of: signal.convolve2d(of(X), of(X[:3, :3])),
    "lfilter": lambda of: signal.lfilter(of(_B), of(_A), of(LINE)),
    "filtfilt": lambda of: signal.filtfilt(of(_B), of(_A), of(LINE)),
    "lfilter_zi": lambda of: signal.lfilter_zi(of(_B), of(_A)),
    "sosfilt": lambda of: signal.sosfilt(of(_SECTIONS), of(LINE)),
    "sosfiltfilt": lambda of: signal.sosfiltfilt(of(_SECTIONS), of(LINE)),
    "savgol_filter": lambda of: signal.savgol_filter(of(LINE), 5, 2),
    "resample_poly": lambda of: signal.resample_poly(of(LINE), 2, 3),
    "upfirdn": lambda of: signal.upfirdn(of(OTHER[:5]), of(LINE), 2, 1),
    "medfilt": lambda of: signal.medfilt(of(LINE), 3),
    "wiener": lambda of: signal.wiener(of(LINE), 3),
    "order_filter": lambda of: signal.order_filter(of(LINE), of(np.ones(3)), 1),
    "firwin": lambda of: signal.firwin(5, of(np.array([0.2, 0.5]))),
    "fftconvolve": lambda of: signal.fftconvolve(of(LINE), of(OTHER[:5])),
    "oaconvolve": lambda of: signal.oaconvolve(of(LINE), of(OTHER[:5])),
    "hilbert": lambda of: signal.hilbert(of(LINE)),
    "resample": lambda of: signal.resample(of(LINE), 20),
    "freqz": lambda of: signal.freqz(of(_B), of(_A), 16),
    "vectorstrength": lambda of: signal.vectorstrength(of(POSITIVE[:, 0]), of(np.array(0.3))),
    "deconvolve": lambda of: signal.deconvolve(of(LINE), of(OTHER[:5])),
}

FFT = calls(fft, named("fft ifft rfft hfft fftn rfft2 dct dst fftshift", X))

NDIMAGE = calls(
    ndimage, named("sobel laplace center_of_mass", X) | named("binary_erosion distance_transform_edt label", X > -1)
) | {
    "gaussian_filter": lambda of: ndimage.gaussian_filter(of(X), 1.0),
    "uniform_filter": lambda of: ndimage.uniform_filter(of(X), 3),
    "median_filter": lambda of: ndimage.median_filter(of(X), 3),
    "maximum_filter": lambda of: ndimage.maximum_filter(of(X), 3),
    "grey_dilation": lambda of: ndimage.grey_dilation(of(X), 3),
    "convolve": lambda of: ndimage.convolve(of(X), of(X[:3, :3])),
    "zoom": lambda of: ndimage.zoom(of(X), 2),
    "rotate": lambda of: ndimage.rotate(of(X), 30),
    "shift": lambda of: ndimage.shift(of(X), 0.5),
}

INTEGRATE: dict[str, Call] = {
    "trapezoid": lambda of: integrate.trapezoid(of(X), axis=0),
    "cumulative_trapezoid": lambda of: integrate.cumulative_trapezoid(of(X), axis=0),
    "cumulative_simpson": lambda of: integrate.cumulative_simpson(of(LINE)),
    "romb": lambda of: integrate.romb(of(X[:9]), axis=0),
    "tanhsinh": lambda of: integrate.tanhsinh(lambda x: x * x, of(_BOUNDS[0]), of(_BOUNDS[1])).integral,
    "nsum": lambda of: integrate.nsum(lambda k: 1 / k**2, of(np.ones(2)), of(np.full(2, 20.0))).sum,
    "cubature": lambda of: integrate.cubature(lambda x: x[:, 0] * x[:, 1], of(np.zeros(2)), of(np.ones(2))).estimate,
}

_BOUNDS = np.zeros(3), np.full(3, 9.0)


def _bracket(of: Of) -> tuple[Any, Any]:
    return of(_BOUNDS[0]), of(_BOUNDS[1])


OPTIMIZE = calls(optimize, named("rosen rosen_der rosen_hess", LINE) | named("rosen_hess_prod", LINE, OTHER)) | {
    "find_root": lambda of: (
        optimize.elementwise.find_root(lambda x, y: x * x - y, _bracket(of), args=(of(POSITIVE[:3, 0]),)).x
    ),
    "find_minimum": lambda of: (
        optimize.elementwise.find_minimum(
            lambda x, y: (x - y) ** 2, (of(-_BOUNDS[1]), *_bracket(of)), args=(of(POSITIVE[:3, 0]),)
        ).x
    ),
    "bracket_root": lambda of: (
        optimize.elementwise.bracket_root(lambda x, y: x - y, of(_BOUNDS[0]), args=(of(POSITIVE[:3, 0]),)).bracket
    ),
    "derivative": lambda of: differentiate.derivative(lambda x: x**3, of(LINE)).df,
    "hessian": lambda of: differentiate.hessian(optimize.rosen, of(LINE[:3])).ddf,
    "jacobian": lambda of: differentiate.jacobian(lambda x: x**2, of(LINE[:3])).df,
}

_GRID = np.arange(60.0)
INTERPOLATE: dict[str, Call] = {
    "CubicSpline": lambda of: interpolate.CubicSpline(of(_GRID), of(LINE))(of(SHARES[:, 0])),
    "Akima1DInterpolator": lambda of: interpolate.Akima1DInterpolator(of(_GRID), of(LINE))(of(SHARES[:, 0])),
    "PchipInterpolator": lambda of: interpolate.PchipInterpolator(of(_GRID), of(LINE))(of(SHARES[:, 0])),
    "make_interp_spline": lambda of: interpolate.make_interp_spline(of(_GRID), of(LINE))(of(SHARES[:, 0])),
    "RegularGridInterpolator": lambda of: interpolate.RegularGridInterpolator((of(_GRID), of(np.arange(5.0))), of(X))(
        of(SHARES[:, :2].copy())
    ),
}

_TURNS, _QUATERNIONS = X[:, :3].copy(), X[:8, :4].copy()
SPATIAL: dict[str, Call] = {
    "Rotation": lambda of: (
        Rotation.from_rotvec(of(_TURNS)).apply(of(X[:, 2:].copy())),
        (Rotation.from_quat(of(_QUATERNIONS)) * Rotation.from_quat(of(_QUATERNIONS[::-1].copy()))).as_matrix(),
        Rotation.from_quat(of(_QUATERNIONS)).inv().as_euler("xyz"),
        Rotation.from_quat(of(_QUATERNIONS)).magnitude(),
    ),
    "orthogonal_procrustes": lambda of: linalg.orthogonal_procrustes(of(X), of(POSITIVE)),
    "block_diag": lambda of: linalg.block_diag(of(X), of(POSITIVE)),
    "fiedler": lambda of: linalg.fiedler(of(LINE)),
    "lambda2nu": lambda of: scipy.constants.lambda2nu(of(POSITIVE)),
    "convert_temperature": lambda of: scipy.constants.convert_temperature(of(POSITIVE), "C", "K"),
}


def fitted(make: Callable[[], Any], *targets: np.ndarray, attributes: str = "", methods: str = "predict") -> Call:
    """Return the attributes of a fitted estimator and its predictions for X."""

    def call(of: Of) -> Any:
        estimator = make().fit(of(X), *map(of, targets))
        said = [getattr(estimator, method)(of(X)) for method in methods.split()]
        return [getattr(estimator, attribute) for attribute in attributes.split()] + said

    return call


_transforming = partial(fitted, methods="transform")
_ridge = partial(Ridge, solver="svd")

ESTIMATORS: dict[str, Call] = {
    "PCA(svd_solver='full')": _transforming(
        lambda: PCA(2, svd_solver="full"), attributes="components_ explained_variance_ singular_values_ mean_"
    ),
    "PCA(whiten=True)": _transforming(lambda: PCA(2, svd_solver="full", whiten=True)),
    "PCA(svd_solver='covariance_eigh')": _transforming(lambda: PCA(2, svd_solver="covariance_eigh")),
    "PCA(svd_solver='randomized')": _transforming(
        lambda: PCA(2, svd_solver="randomized", power_iteration_normalizer="QR", random_state=0)
    ),
    "PCA('mle')": _transforming(lambda: PCA("mle", svd_solver="full")),
    "Ridge": fitted(_ridge, Y, attributes="coef_ intercept_"),
    "RidgeCV": fitted(RidgeCV, Y, attributes="coef_ alpha_"),
    "RidgeClassifier": fitted(partial(RidgeClassifier, solver="svd"), TRUTHS),
    "RidgeClassifierCV": fitted(RidgeClassifierCV, TRUTHS),
    "LogisticRegression": fitted(LogisticRegression, TRUTHS, attributes="coef_", methods="predict predict_proba"),
    "PoissonRegressor": fitted(partial(PoissonRegressor, solver="lbfgs"), np.abs(Y), attributes="coef_"),
    "LinearDiscriminantAnalysis": lambda of: [
        *fitted(LinearDiscriminantAnalysis, CLASSES, methods="predict predict_proba decision_function")(of),
        # Singular vectors are unique but for their sign.
        abs(LinearDiscriminantAnalysis().fit(of(X), of(CLASSES)).transform(of(X))),
    ],
    "GaussianNB": fitted(naive_bayes.GaussianNB, TRUTHS, methods="predict predict_proba predict_log_proba"),
    "GaussianMixture": fitted(
        lambda: mixture.GaussianMixture(2, init_params="random", random_state=0, tol=1e-2), attributes="means_"
    ),
    "Nystroem": _transforming(lambda: Nystroem(n_components=4, random_state=0)),
    "StandardScaler": _transforming(preprocessing.StandardScaler, attributes="mean_ scale_"),
    "MinMaxScaler": _transforming(preprocessing.MinMaxScaler),
    "MaxAbsScaler": _transforming(preprocessing.MaxAbsScaler),
    "Normalizer": _transforming(preprocessing.Normalizer),
    "Binarizer": _transforming(preprocessing.Binarizer),
    "PolynomialFeatures": _transforming(lambda: preprocessing.PolynomialFeatures(2)),
    "KernelCenterer": lambda of: preprocessing.KernelCenterer().fit_transform(of(X @ X.T)),
    "LabelEncoder": lambda of: _encoded(preprocessing.LabelEncoder().fit(of(CLASSES)), of(CLASSES)),
    "LabelBinarizer": lambda of: _encoded(preprocessing.LabelBinarizer().fit(of(CLASSES)), of(CLASSES)),
    "make_pipeline": fitted(
        lambda: make_pipeline(preprocessing.StandardScaler(), PCA(2, svd_solver="full"), _ridge()), Y
    ),
    "GridSearchCV": fitted(lambda: GridSearchCV(_ridge(), {"alpha": [0.1, 1.0]}, cv=3), Y),
    "CalibratedClassifierCV": fitted(
        lambda: CalibratedClassifierCV(LinearDiscriminantAnalysis(), method="temperature", cv=3),
        TRUTHS,
        methods="predict_proba",
    ),
    "cross_val_predict": lambda of: cross_val_predict(_ridge(), of(X), of(Y), cv=3),
    "cross_val_score": lambda of: list(cross_val_score(_ridge(), of(X), of(Y), cv=3)),
    "train_test_split": lambda of: train_test_split(of(X), of(Y), random_state=0),
    "check_array": lambda of: check_array(of(X)),
    "randomized_svd": lambda of: randomized_svd(of(X), 2, power_iteration_normalizer="QR", random_state=0),
    "randomized_range_finder": lambda of: randomized_range_finder(
        of(X), size=2, n_iter=2, power_iteration_normalizer="QR", random_state=0
    ),
}


def _encoded(encoder: Any, labels: Any) -> tuple[Any, Any]:
    codes = encoder.transform(labels)
    return codes, encoder.inverse_transform(codes)


_TARGETS = np.abs(Y) + 0.1, np.abs(Y[::-1]) + 0.1
METRICS = (
    calls(
        metrics,
        {
            **named("mean_squared_error root_mean_squared_error mean_absolute_error median_absolute_error", *_TARGETS),
            **named("mean_absolute_percentage_error mean_squared_log_error root_mean_squared_log_error", *_TARGETS),
            **named("mean_pinball_loss mean_tweedie_deviance mean_poisson_deviance mean_gamma_deviance", *_TARGETS),
            **named("r2_score explained_variance_score max_error d2_tweedie_score d2_absolute_error_score", *_TARGETS),
            **named("d2_pinball_score", *_TARGETS),
            **named("accuracy_score balanced_accuracy_score zero_one_loss hamming_loss jaccard_score", TRUTHS, GUESSES),
            **named("f1_score precision_score recall_score cohen_kappa_score confusion_matrix", TRUTHS, GUESSES),
            **named("multilabel_confusion_matrix", LABELS, GUESSED),
            **named("precision_recall_curve average_precision_score det_curve", TRUTHS, SCORES),
            **named("brier_score_loss log_loss d2_brier_score d2_log_loss_score", TRUTHS, SCORES),
        },
    )
    | {
        f"{name} of several classes": lambda of, name=name: getattr(metrics, name)(
            of(CLASSES), of(OTHERS), average="macro"
        )
        for name in ("f1_score", "precision_score", "recall_score", "jaccard_score")
    }
    | {
        "fbeta_score": lambda of: metrics.fbeta_score(of(TRUTHS), of(GUESSES), beta=0.5),
        "f1_score of several labels": lambda of: metrics.f1_score(of(LABELS), of(GUESSED), average="samples"),
        "auc": lambda of: metrics.auc(of(np.sort(SCORES)), of(SCORES)),
        "entropy": lambda of: metrics.cluster.entropy(of(CLASSES)),
    }
    | calls(
        pairwise,
        {
            **named("euclidean_distances manhattan_distances cosine_distances cosine_similarity", X, X[:7]),
            **named("linear_kernel polynomial_kernel rbf_kernel sigmoid_kernel laplacian_kernel", X, X[:7]),
            **named("chi2_kernel additive_chi2_kernel", POSITIVE, POSITIVE[:7]),
            **named("paired_euclidean_distances paired_cosine_distances paired_manhattan_distances", X, X[::-1].copy()),
            **named("pairwise_distances pairwise_kernels", X),
        },
    )
)

EINOPS: dict[str, Call] = {
    "rearrange": lambda of: (
        einops.array_api.rearrange(of(IMAGES), "b c (h i) (w j) -> b (c i j) h w", i=2, j=2),
        einops.array_api.rearrange([of(IMAGES[0]), of(IMAGES[1])], "b c h w -> c b h w"),
    ),
    "reduce": lambda of: [
        einops.array_api.reduce(of(IMAGES), "b c (h 2) (w 2) -> b c h w", how)
        for how in ("mean", "max", "min", "sum", "prod")
    ],
    "repeat": lambda of: einops.array_api.repeat(of(IMAGES), "b c h w -> b c (h 2) (w 3)"),
    "pack": lambda of: einops.array_api.pack([of(IMAGES), of(IMAGES[:, 0])], "b * w")[0],
    "unpack": lambda of: einops.array_api.unpack(of(IMAGES[0].reshape(3, -1)), [(6,), (6, 7)], "c *"),
}

AREAS: dict[str, dict[str, Call]] = {
    "scipy.special": SPECIAL,
    "scipy.stats": STATS,
    "scipy.cluster": CLUSTER,
    "scipy.signal": SIGNAL,
    "scipy.fft": FFT,
    "scipy.ndimage": NDIMAGE,
    "scipy.integrate": INTEGRATE,
    "scipy.optimize": OPTIMIZE,
    "scipy.interpolate": INTERPOLATE,
    "scipy.spatial": SPATIAL,
    "sklearn": ESTIMATORS,
    "sklearn.metrics": METRICS,
    "einops.array_api": EINOPS,
}

# What the packages say to compute with any namespace, and do not: by the part of the message that says why.
BEYOND_THE_STANDARD: dict[str, tuple[Call, str]] = {
    "RBFInterpolator": (lambda of: interpolate.RBFInterpolator(of(X), of(LINE)), "view: shape must be integers"),
    "roc_curve": (lambda of: metrics.roc_curve(of(TRUTHS), of(SCORES)), "takes 1 positional argument but 2"),
    "Ridge(solver='cholesky')": (
        lambda of: Ridge(solver="cholesky").fit(of(X), of(Y)),
        "only supports solver 'svd'",
    ),
    "einops.rearrange": (lambda of: einops.rearrange(of(X), "a b -> b a"), "Tensor type unknown to einops"),
}

# One of each way in which the packages use tensors, for devices on which all would take too long.
FEW = (
    *("erf", "rel_entr", "logsumexp", "softmax", "stdtr", "zscore", "skew", "pearsonr", "ttest_ind", "rankdata"),
    *("kmeans", "kmeans2 from a number", "linkage", "detrend", "lfilter", "savgol_filter", "gaussian_filter"),
    *("trapezoid", "cumulative_simpson", "rosen_hess", "find_root", "CubicSpline", "Rotation", "Ridge"),
    *("PCA(svd_solver='full')", "PCA(whiten=True)", "PCA(svd_solver='randomized')", "LinearDiscriminantAnalysis"),
    *("StandardScaler", "PolynomialFeatures", "LabelEncoder", "cross_val_predict", "f1_score", "r2_score"),
    *("mean_squared_error", "accuracy_score", "log_loss", "euclidean_distances", "cosine_similarity", "rbf_kernel"),
    *("rearrange", "reduce", "repeat", "pack", "unpack"),
)


def cases(few: bool) -> list[tuple[str, str]]:
    """The area and the name of each call, or of those of few."""
    return [(area, name) for area, actual in AREAS.items() for name in actual if not few or name in FEW]
