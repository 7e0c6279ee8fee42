/* A C extension on the capsule: LRN there and back, and the statuses of calls that do not fit. */

#include <Python.h>

#include <cynorm/cynorm.h>

static const cynorm_api *cynorm;

/* forward(src, dst, shape of 4, channels_last): float32 memory. */
static PyObject *forward(PyObject *self, PyObject *args) {
    Py_buffer src, dst;
    long long n, c, h, w;
    int layout, status;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*w*LLLLi", &src, &dst, &n, &c, &h, &w, &layout)) return NULL;
    int64_t shape[4] = {n, c, h, w};
    cynorm_tensor s = cynorm_dense(src.buf, CYNORM_F32, 4, shape), d = cynorm_dense(dst.buf, CYNORM_F32, 4, shape);
    cynorm_lrn lrn = cynorm_lrn_make(0, 5, 1.0, 0.75, 1.0, (cynorm_layout)layout, 4);
    Py_BEGIN_ALLOW_THREADS
    status = cynorm->lrn_forward(&lrn, &s, &d, NULL, 0);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&src);
    PyBuffer_Release(&dst);
    return PyLong_FromLong(status);
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
static void no_dtype(cynorm_lrn *p, cynorm_tensor *s, cynorm_tensor *d) { (void)p, s->dtype = d->dtype = 9; }
static void other_shape(cynorm_lrn *p, cynorm_tensor *s, cynorm_tensor *d) { (void)p, (void)s, d->shape[1] = 3; }
static void other_dtype(cynorm_lrn *p, cynorm_tensor *s, cynorm_tensor *d) { (void)p, (void)s, d->dtype = CYNORM_F16; }
static void other_layout(cynorm_lrn *p, cynorm_tensor *s, cynorm_tensor *d) { (void)s, (void)d, p->spatial = 3; }
static void bad_window(cynorm_lrn *p, cynorm_tensor *s, cynorm_tensor *d) { (void)s, (void)d, p->left = -1; }

static PyObject *statuses(PyObject *self, PyObject *args) {
    (void)self, (void)args;
    return Py_BuildValue("iiiiiii", lrn_status(nothing), lrn_status(no_data), lrn_status(no_dtype),
                         lrn_status(other_shape), lrn_status(other_dtype), lrn_status(other_layout),
                         lrn_status(bad_window));
}

static PyMethodDef methods[] = {{"forward", forward, METH_VARARGS, NULL}, {"statuses", statuses, METH_NOARGS, NULL}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "c_api", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_c_api(void) {
    cynorm = cynorm_import();
    return cynorm ? PyModule_Create(&module) : NULL;
}
