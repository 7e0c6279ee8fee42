/* A C extension on the capsule: LRN and BN, there and back, and the statuses of calls that do not fit. */

#include <Python.h>
#include <limits.h>

#include <cynorm/cynorm.h>

static const cynorm_api *cynorm;

/* An array in any memory as a tensor. */
typedef struct {
    Py_buffer buffer;
    cynorm_tensor tensor;
} array;

/* All of a tuple, tensors[i] being NULL for None; 0 with a Python error set. */
static int take(PyObject *tuple, array *arrays, const cynorm_tensor **tensors, int n) {
    memset(arrays, 0, (size_t)n * sizeof(array));
    for (int i = 0; i < n; i++) {
        PyObject *object = PyTuple_GetItem(tuple, i);
        cynorm_tensor *t = &arrays[i].tensor;
        tensors[i] = NULL;
        if (!object) return 0;
        if (object == Py_None) continue;
        if (PyObject_GetBuffer(object, &arrays[i].buffer, PyBUF_STRIDES | PyBUF_FORMAT)) return 0;
        tensors[i] = t;
        t->data = arrays[i].buffer.buf;
        t->dtype = *arrays[i].buffer.format == 'd' ? CYNORM_F64 : CYNORM_F32;
        t->ndim = arrays[i].buffer.ndim;
        memcpy(t->shape, arrays[i].buffer.shape, (size_t)t->ndim * sizeof(int64_t));
        memcpy(t->strides, arrays[i].buffer.strides, (size_t)t->ndim * sizeof(int64_t));
    }
    return 1;
}

static void release(array *arrays, int n) {
    for (int i = 0; i < n; i++) PyBuffer_Release(&arrays[i].buffer);
}

/* lrn(layout, (src, dst, diff_dst, diff_src, omega), channels = 0, within_channel = 0): forward and backward, omega kept between
 * them where it is given. */
static PyObject *lrn(PyObject *self, PyObject *args) {
    enum { SRC, DST, DIFF_DST, DIFF_SRC, OMEGA, ALL };
    PyObject *tuple;
    array arrays[ALL];
    const cynorm_tensor *t[ALL];
    int layout, channels = 0, within = 0, forward = 0, backward = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "iO!|ii", &layout, &PyTuple_Type, &tuple, &channels, &within)) return NULL;
    if (take(tuple, arrays, t, ALL)) {
        cynorm_lrn lrn = cynorm_lrn_make(within, 5, 1.0, 0.75, 1.0, (cynorm_layout)layout, t[SRC]->ndim);
        lrn.channels = channels;
        if (layout > CYNORM_BLOCKED_16) lrn.block = layout, lrn.spatial = t[SRC]->ndim - 3;
        Py_BEGIN_ALLOW_THREADS
        forward = cynorm->lrn_forward(&lrn, t[SRC], t[DST], t[OMEGA], 0);
        backward = cynorm->lrn_backward(&lrn, t[DIFF_DST], t[SRC], NULL, t[DIFF_SRC], t[OMEGA], 0);
        Py_END_ALLOW_THREADS
    }
    release(arrays, ALL);
    return PyErr_Occurred() ? NULL : Py_BuildValue("ii", forward, backward);
}

/* batch_norm(layout, training, (tensors..., vectors...)): forward with ReLU and backward, whose tensors forward has as well; and
 * whether what is not theirs to write was left alone. Vectors are contiguous. */
static PyObject *batch_norm(PyObject *self, PyObject *args) {
    enum { SRC, ADD, DST, DIFF_DST, DIFF_SRC, DIFF_ADD, SCALE, SHIFT, MEAN, VARIANCE, RUNNING_MEAN, RUNNING_VARIANCE,
           DIFF_SCALE, DIFF_SHIFT, ALL };
    PyObject *tuple;
    array arrays[ALL];
    const cynorm_tensor *t[ALL];
    int layout, training, left_alone = 1, statuses[2] = {0, 0};
    (void)self;
    if (!PyArg_ParseTuple(args, "ipO!", &layout, &training, &PyTuple_Type, &tuple)) return NULL;
    if (take(tuple, arrays, t, ALL)) {
        Py_BEGIN_ALLOW_THREADS
        for (int i = SCALE; i < ALL; i++)
            if (t[i]) arrays[i].tensor = cynorm_bn_vector(t[i]->data, t[i]->dtype, t[SRC], (cynorm_layout)layout);
        size_t vector_bytes = (size_t)arrays[MEAN].buffer.len;
        cynorm_tensor mask = *t[SRC], mean_low = *t[MEAN], rstd = *t[MEAN];
        mean_low.data = memset(malloc(vector_bytes), 7, vector_bytes);
        rstd.data = memset(malloc(vector_bytes), 7, vector_bytes);

        cynorm_bn bn = cynorm_bn_make(1e-5, CYNORM_RELU);
        unsigned reduced = cynorm_bn_reduced((cynorm_layout)layout, t[SRC]->ndim);
        cynorm_bn_call call = cynorm_bn_call_make(training ? CYNORM_BN_FORWARD_TRAINING : CYNORM_BN_FORWARD_INFERENCE, reduced);
        call.data[CYNORM_BN_SRC] = t[SRC];
        call.data[CYNORM_BN_ADD] = t[ADD];
        call.data[CYNORM_BN_DST] = t[DST];
        call.data[CYNORM_BN_DIFF_DST] = t[DIFF_DST];
        call.data[CYNORM_BN_DIFF_ADD] = t[DIFF_ADD];
        call.parameter[CYNORM_BN_SCALE] = t[SCALE];
        call.parameter[CYNORM_BN_SHIFT] = t[SHIFT];
        call.parameter[CYNORM_BN_MEAN] = t[MEAN];
        call.parameter[CYNORM_BN_VARIANCE] = t[VARIANCE];
        call.parameter[CYNORM_BN_RUNNING_MEAN] = t[RUNNING_MEAN];
        call.parameter[CYNORM_BN_RUNNING_VARIANCE] = t[RUNNING_VARIANCE];
        call.parameter[CYNORM_BN_MEAN_LOW] = &mean_low;
        call.parameter[CYNORM_BN_RSTD] = &rstd;
        mask.strides[CYNORM_MAX_NDIM - 1] = 7;
        mask.data = malloc((size_t)cynorm->batch_norm_mask(&bn, &call, mask.strides));
        left_alone &= mask.strides[CYNORM_MAX_NDIM - 1] == 7;
        call.data[CYNORM_BN_MASK] = &mask;
        statuses[0] = cynorm->batch_norm(&bn, &call, 0);

        call.kind = training ? CYNORM_BN_BACKWARD_TRAINING : CYNORM_BN_BACKWARD_INFERENCE;
        call.data[CYNORM_BN_DST] = t[DIFF_SRC];
        for (size_t i = 0; !training && i < vector_bytes; i++)
            left_alone &= ((char *)mean_low.data)[i] == 7 && ((char *)rstd.data)[i] == 7;
        if (!training) call.parameter[CYNORM_BN_MEAN_LOW] = call.parameter[CYNORM_BN_RSTD] = NULL;
        if (training) call.parameter[CYNORM_BN_VARIANCE] = NULL; /* MEAN, MEAN_LOW and RSTD say more */
        call.parameter[CYNORM_BN_DIFF_SCALE] = t[DIFF_SCALE];
        call.parameter[CYNORM_BN_DIFF_SHIFT] = t[DIFF_SHIFT];
        statuses[1] = cynorm->batch_norm(&bn, &call, 0);
        free(mask.data);
        free(mean_low.data);
        free(rstd.data);
        Py_END_ALLOW_THREADS
    }
    release(arrays, ALL);
    return PyErr_Occurred() ? NULL : Py_BuildValue("iii", statuses[0], statuses[1], left_alone);
}

static int lrn_status(void (*spoil)(cynorm_lrn *, cynorm_tensor *, cynorm_tensor *)) {
    float memory[16] = {0}, out[16];
    int64_t shape[4] = {1, 4, 2, 2};
    cynorm_tensor s = cynorm_dense(memory, CYNORM_F32, 4, shape), d = cynorm_dense(out, CYNORM_F32, 4, shape);
    cynorm_lrn lrn = cynorm_lrn_make(0, 5, 1.0, 0.75, 1.0, CYNORM_CHANNELS_FIRST, 4);
    spoil(&lrn, &s, &d);
    return cynorm->lrn_forward(&lrn, &s, &d, NULL, 1);
}

static void nothing(cynorm_lrn *p, cynorm_tensor *s, cynorm_tensor *d) { (void)p, (void)s, (void)d; }
static void no_data(cynorm_lrn *p, cynorm_tensor *s, cynorm_tensor *d) { (void)p, (void)d, s->data = NULL; }
/* extents whose product is 0 in 64 bits */
static void too_many(cynorm_lrn *p, cynorm_tensor *s, cynorm_tensor *d) {
    (void)p;
    for (int i = 0; i < 4; i++) s->shape[i] = d->shape[i] = 1 << 16;
    s->data = d->data = NULL;
}
static void no_dtype(cynorm_lrn *p, cynorm_tensor *s, cynorm_tensor *d) { (void)p, s->dtype = d->dtype = 9; }
static void other_shape(cynorm_lrn *p, cynorm_tensor *s, cynorm_tensor *d) { (void)p, (void)s, d->shape[1] = 3; }
static void other_dtype(cynorm_lrn *p, cynorm_tensor *s, cynorm_tensor *d) { (void)p, (void)s, d->dtype = CYNORM_F16; }
static void other_layout(cynorm_lrn *p, cynorm_tensor *s, cynorm_tensor *d) { (void)s, (void)d, p->spatial = 3; }
static void far_axis(cynorm_lrn *p, cynorm_tensor *s, cynorm_tensor *d) { (void)s, (void)d, p->spatial_axis = INT_MAX; }
static void bad_window(cynorm_lrn *p, cynorm_tensor *s, cynorm_tensor *d) { (void)s, (void)d, p->left = -1; }
static void bad_region(cynorm_lrn *p, cynorm_tensor *s, cynorm_tensor *d) { (void)s, (void)d, p->within_channel = 2; }
static void no_number(cynorm_lrn *p, cynorm_tensor *s, cynorm_tensor *d) { (void)s, (void)d, p->beta -= p->beta / 0.0; }

typedef void (*spoil_call)(cynorm_bn_call *, cynorm_tensor *);

static int batch_norm_status(cynorm_bn_pass kind, cynorm_activation activation, spoil_call spoil) {
    float memory[16] = {0}, out[16], vector[4] = {0};
    int64_t shape[4] = {1, 4, 2, 2};
    cynorm_tensor s = cynorm_dense(memory, CYNORM_F32, 4, shape), d = cynorm_dense(out, CYNORM_F32, 4, shape);
    cynorm_tensor v = cynorm_bn_vector(vector, CYNORM_F32, &s, CYNORM_CHANNELS_FIRST), other = d;
    cynorm_bn bn = cynorm_bn_make(1e-5, activation);
    cynorm_bn_call call = cynorm_bn_call_make(kind, cynorm_bn_reduced(CYNORM_CHANNELS_FIRST, 4));
    call.data[CYNORM_BN_SRC] = call.data[CYNORM_BN_DIFF_DST] = &s;
    call.data[CYNORM_BN_DST] = &d;
    call.parameter[CYNORM_BN_MEAN] = call.parameter[CYNORM_BN_VARIANCE] = &v;
    spoil(&call, &other);
    return cynorm->batch_norm(&bn, &call, 1);
}

static void as_it_is(cynorm_bn_call *c, cynorm_tensor *t) { (void)c, (void)t; }
static void no_dst(cynorm_bn_call *c, cynorm_tensor *t) { (void)t, c->data[CYNORM_BN_DST] = NULL; }
static void no_diff_dst(cynorm_bn_call *c, cynorm_tensor *t) { (void)t, c->data[CYNORM_BN_DIFF_DST] = NULL; }
static void no_variance(cynorm_bn_call *c, cynorm_tensor *t) { (void)t, c->parameter[CYNORM_BN_VARIANCE] = NULL; }
static void more_axes(cynorm_bn_call *c, cynorm_tensor *t) { (void)t, c->reduced = 1 << 4; }
static void varying(cynorm_bn_call *c, cynorm_tensor *t) { c->parameter[CYNORM_BN_MEAN] = t; }
static void other_add(cynorm_bn_call *c, cynorm_tensor *t) { t->shape[3] = 1, c->data[CYNORM_BN_ADD] = t; }
static void other_diff_add(cynorm_bn_call *c, cynorm_tensor *t) { t->dtype = CYNORM_F16, c->data[CYNORM_BN_DIFF_ADD] = t; }
static void kept_shift(cynorm_bn_call *c, cynorm_tensor *t) {
    (void)t, c->parameter[CYNORM_BN_KEPT_SHIFT] = c->parameter[CYNORM_BN_MEAN];
}
static void unused(cynorm_bn_call *c, cynorm_tensor *t) {
    const int forward = c->kind < CYNORM_BN_BACKWARD_TRAINING;
    t->data = NULL, c->data[CYNORM_BN_MASK] = c->data[CYNORM_BN_VALUE] = t;
    if (forward) c->data[CYNORM_BN_DIFF_ADD] = c->parameter[CYNORM_BN_DIFF_SCALE] = c->parameter[CYNORM_BN_DIFF_SHIFT] = t;
    else c->data[CYNORM_BN_ADD] = t;
    if (c->kind != CYNORM_BN_FORWARD_TRAINING)
        c->parameter[CYNORM_BN_RUNNING_MEAN] = c->parameter[CYNORM_BN_RUNNING_VARIANCE] = c->parameter[CYNORM_BN_KEPT_MEAN] =
            c->parameter[CYNORM_BN_KEPT_SHIFT] = t;
    if (c->kind == CYNORM_BN_FORWARD_INFERENCE) c->parameter[CYNORM_BN_MEAN_LOW] = c->parameter[CYNORM_BN_RSTD] = t;
}
static void no_mask_data(cynorm_bn_call *c, cynorm_tensor *t) { t->data = NULL, c->data[CYNORM_BN_MASK] = t; }
static void other_kind(cynorm_bn_call *c, cynorm_tensor *t) { (void)t, c->kind = (cynorm_bn_pass)9; }
static void other_vector(cynorm_bn_call *c, cynorm_tensor *t) {
    memset(t->strides, 0, sizeof t->strides), t->shape[1] = 1, c->parameter[CYNORM_BN_MEAN] = t;
}

static PyObject *batch_norm_statuses(PyObject *self, PyObject *args) {
    enum { TRAINING = CYNORM_BN_FORWARD_TRAINING, INFERENCE, BACKWARD_TRAINING, BACKWARD_INFERENCE };
    static const struct { cynorm_bn_pass kind; cynorm_activation activation; spoil_call spoil; } cases[] = {
        {TRAINING, CYNORM_RELU, as_it_is}, {INFERENCE, CYNORM_RELU, as_it_is},
        {BACKWARD_TRAINING, CYNORM_IDENTITY, as_it_is}, {BACKWARD_INFERENCE, CYNORM_IDENTITY, as_it_is},
        {TRAINING, CYNORM_IDENTITY, unused}, {INFERENCE, CYNORM_IDENTITY, unused},
        {BACKWARD_TRAINING, CYNORM_IDENTITY, unused}, {BACKWARD_INFERENCE, CYNORM_IDENTITY, unused},
        {TRAINING, CYNORM_IDENTITY, no_dst}, {BACKWARD_TRAINING, CYNORM_IDENTITY, no_diff_dst},
        {BACKWARD_TRAINING, CYNORM_RELU, as_it_is}, {INFERENCE, CYNORM_IDENTITY, no_variance},
        {BACKWARD_INFERENCE, CYNORM_IDENTITY, no_variance}, {TRAINING, CYNORM_RELU, no_mask_data},
        {TRAINING, CYNORM_IDENTITY, kept_shift},
        {TRAINING, CYNORM_IDENTITY, varying}, {INFERENCE, CYNORM_IDENTITY, other_vector},
        {TRAINING, CYNORM_IDENTITY, other_add}, {BACKWARD_TRAINING, CYNORM_IDENTITY, other_diff_add},
        {TRAINING, CYNORM_IDENTITY, more_axes}, {TRAINING, (cynorm_activation)99, as_it_is},
        {TRAINING, CYNORM_IDENTITY, other_kind},
    };
    enum { CASES = sizeof cases / sizeof *cases };
    PyObject *list = PyList_New(0);
    (void)self, (void)args;
    for (int i = 0; list && i < CASES; i++) {
        PyObject *status = PyLong_FromLong(batch_norm_status(cases[i].kind, cases[i].activation, cases[i].spoil));
        if (!status || PyList_Append(list, status)) Py_CLEAR(list);
        Py_XDECREF(status);
    }
    return list;
}

/* Of an operator whose activation has this parameter in place of its own; without channels if `data` is 0, without running
 * statistics if momentum is 3. */
static long parameter_status(cynorm_bn_pass kind, cynorm_activation activation, double momentum, double parameter, int data) {
    float memory[16] = {0}, out[16], vector[4] = {0}, running[4] = {0};
    int64_t shape[4] = {1, data ? 4 : 0, 2, 2};
    cynorm_tensor s = cynorm_dense(data ? memory : NULL, CYNORM_F32, 4, shape), d = s;
    cynorm_tensor v = cynorm_bn_vector(data ? vector : NULL, CYNORM_F32, &s, CYNORM_CHANNELS_FIRST), w = v;
    cynorm_bn bn = cynorm_bn_make(1e-5, activation);
    cynorm_bn_call call = cynorm_bn_call_make(kind, cynorm_bn_reduced(CYNORM_CHANNELS_FIRST, 4));
    d.data = data ? (char *)out : NULL;
    w.data = data ? (char *)running : NULL;
    if (momentum != 3) call.parameter[CYNORM_BN_RUNNING_MEAN] = &w;
    bn.momentum = momentum;
    bn.parameter[0] = parameter;
    call.data[CYNORM_BN_SRC] = &s, call.data[CYNORM_BN_DST] = &d;
    call.parameter[CYNORM_BN_MEAN] = call.parameter[CYNORM_BN_VARIANCE] = &v;
    return cynorm->batch_norm(&bn, &call, 1);
}

static PyObject *parameter_statuses(PyObject *self, PyObject *args) {
    const double infinite = Py_HUGE_VAL;
    (void)self, (void)args;
    return Py_BuildValue("llllllllll", parameter_status(CYNORM_BN_FORWARD_TRAINING, CYNORM_CELU, 0.1, 1, 1),
                         parameter_status(CYNORM_BN_FORWARD_TRAINING, CYNORM_IDENTITY, 3, 0, 1),
                         parameter_status(CYNORM_BN_FORWARD_TRAINING, CYNORM_RELU, 1, 0, 0),
                         parameter_status(CYNORM_BN_FORWARD_INFERENCE, CYNORM_LINEAR, 2, 0, 1),
                         parameter_status(CYNORM_BN_FORWARD_TRAINING, CYNORM_IDENTITY, 2, 0, 1),
                         parameter_status(CYNORM_BN_FORWARD_TRAINING, CYNORM_IDENTITY, infinite - infinite, 0, 1),
                         parameter_status(CYNORM_BN_FORWARD_TRAINING, CYNORM_ELU, 0.1, infinite, 1),
                         parameter_status(CYNORM_BN_FORWARD_TRAINING, CYNORM_CELU, 0.1, 0, 1),
                         parameter_status(CYNORM_BN_FORWARD_INFERENCE, CYNORM_SOFTPLUS, 0.1, 0, 1),
                         parameter_status(CYNORM_BN_FORWARD_INFERENCE, CYNORM_TANH, 0.1, infinite, 1));
}

/* int8_inference(activation, src, dst, mask, value): src and dst of int8, mask of bytes, value of reals, all of one shape but for
 * the mask; mean 3 and variance 4. */
static PyObject *int8_inference(PyObject *self, PyObject *args) {
    PyObject *given;
    Py_buffer src, dst, mask, value;
    int activation, status = 1;
    (void)self;
    if (!PyArg_ParseTuple(args, "iOw*w*w*", &activation, &given, &dst, &mask, &value)) return NULL;
    if (!PyObject_GetBuffer(given, &src, PyBUF_C_CONTIGUOUS)) {
        float statistics[2] = {3, 4};
        cynorm_tensor s = cynorm_dense(src.buf, CYNORM_S8, 4, (const int64_t *)src.shape), d = s, m = s;
        cynorm_tensor v = cynorm_dense(value.buf, CYNORM_F32, 4, (const int64_t *)src.shape);
        cynorm_tensor mean = cynorm_bn_vector(&statistics[0], CYNORM_F32, &s, CYNORM_CHANNELS_FIRST), variance = mean;
        cynorm_bn bn = cynorm_bn_make(0, (cynorm_activation)activation);
        cynorm_bn_call call = cynorm_bn_call_make(CYNORM_BN_FORWARD_INFERENCE, 15);
        memset(mean.strides, 0, sizeof mean.strides), memset(variance.strides, 0, sizeof variance.strides);
        variance.data = (char *)&statistics[1];
        d.data = dst.buf, m.data = mask.buf;
        call.data[CYNORM_BN_SRC] = &s, call.data[CYNORM_BN_DST] = &d, call.data[CYNORM_BN_VALUE] = &v;
        call.parameter[CYNORM_BN_MEAN] = &mean, call.parameter[CYNORM_BN_VARIANCE] = &variance;
        const int64_t bytes = cynorm->batch_norm_mask(&bn, &call, m.strides);
        call.data[CYNORM_BN_MASK] = &m;
        if (bytes > 0 && bytes <= mask.len) status = cynorm->batch_norm(&bn, &call, 1);
        PyBuffer_Release(&src);
    }
    PyBuffer_Release(&dst), PyBuffer_Release(&mask), PyBuffer_Release(&value);
    return PyErr_Occurred() ? NULL : PyLong_FromLong(status);
}

/* defaults(activation): the parameters that cynorm_bn_make gives it. */
static PyObject *defaults(PyObject *self, PyObject *args) {
    int activation;
    (void)self;
    if (!PyArg_ParseTuple(args, "i", &activation)) return NULL;
    const cynorm_bn bn = cynorm_bn_make(1e-5, (cynorm_activation)activation);
    return Py_BuildValue("dd", bn.parameter[0], bn.parameter[1]);
}

static PyObject *statuses(PyObject *self, PyObject *args) {
    (void)self, (void)args;
    return Py_BuildValue("iiiiiiiiiii", lrn_status(nothing), lrn_status(no_data), lrn_status(too_many), lrn_status(no_dtype),
                         lrn_status(other_shape), lrn_status(other_dtype), lrn_status(other_layout),
                         lrn_status(far_axis), lrn_status(bad_window), lrn_status(no_number),
                         lrn_status(bad_region));
}

static PyMethodDef methods[] = {{"lrn", lrn, METH_VARARGS, NULL},
                                {"batch_norm", batch_norm, METH_VARARGS, NULL},
                                {"statuses", statuses, METH_NOARGS, NULL},
                                {"batch_norm_statuses", batch_norm_statuses, METH_NOARGS, NULL},
                                {"parameter_statuses", parameter_statuses, METH_NOARGS, NULL},
                                {"defaults", defaults, METH_VARARGS, NULL},
                                {"int8_inference", int8_inference, METH_VARARGS, NULL},
                                {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "c_api", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_c_api(void) {
    cynorm = cynorm_import();
    return cynorm ? PyModule_Create(&module) : NULL;
}
