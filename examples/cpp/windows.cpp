// SPDX-License-Identifier: Apache-2.0
/*
 * Learns to continue a series of numbers, which is one std::vector: inputs and
 * targets are views of it that overlap, and nothing is copied.
 *
 *     windows MODEL.pt2 [STEPS]
 *
 * Row i of the input has the numbers i to i+4, and the target of the row is
 * number i+5. So both have strides of one number, and shapes (64, 5) and
 * (64, 1). The model is examples/fortran/closure.pt2: five numbers to one.
 */
#include <penstock.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace
{

constexpr int64_t rows = 64, width = 5;

struct failure : std::runtime_error {
    explicit failure(const penstock_error &e)
        : std::runtime_error(std::string(e.text) + " [" + e.id + "] " +
                             e.remedy)
    {
    }
};

/* Calls a function of the library, and throws its error. */
template <typename function, typename... words>
void call(function *f, words... w)
{
    penstock_error error = PENSTOCK_INIT(error);

    if (f(w..., &error) != 0)
        throw failure(error);
}

struct closes {
    void operator()(penstock_model *m) const
    {
        penstock_close(m);
    }
    void operator()(penstock_session *s) const
    {
        penstock_session_free(s);
    }
};
using model_ptr = std::unique_ptr<penstock_model, closes>;
using session_ptr = std::unique_ptr<penstock_session, closes>;

model_ptr open_model(const char *path)
{
    const penstock_option stages[] = {{"stages", "2"}};
    penstock_open_config config = PENSTOCK_INIT(config);
    penstock_model *model = nullptr;

    config.options = stages;
    config.n_options = 1;
    call(penstock_open, path, &config, &model);
    return model_ptr(model);
}

session_ptr make_session(penstock_model *model)
{
    const penstock_option options[] = {{"microbatches", "2"},
                                       {"optimizer", "adamw"},
                                       {"lr", "1e-2"},
                                       {"threads", "1"},
                                       {"ranks", "2"}};
    penstock_session_config config = PENSTOCK_INIT(config);
    penstock_session *session = nullptr;

    config.options = options;
    config.n_options = sizeof(options) / sizeof(options[0]);
    call(penstock_session_new, model, &config, &session);
    return session_ptr(session);
}

/* A view of the series: element (i, j) is number first + i + j. */
class view
{
  public:
    view(std::vector<float> &series, int64_t first, int64_t columns)
        : shape{rows, columns}, strides{1, 1}, tensor()
    {
        if (first < 0 || first + rows - 1 + columns > int64_t(series.size()))
            throw std::out_of_range("a view beyond the series");
        tensor.data = series.data();
        tensor.byte_offset = uint64_t(first) * sizeof(float);
        tensor.device.device_type = kDLCPU;
        tensor.dtype.code = kDLFloat;
        tensor.dtype.bits = 32;
        tensor.dtype.lanes = 1;
        tensor.ndim = 2;
        tensor.shape = shape;
        tensor.strides = strides;
    }
    view(const view &) = delete;
    view &operator=(const view &) = delete;

    const DLTensor *get() const
    {
        return &tensor;
    }

  private:
    int64_t shape[2], strides[2];
    DLTensor tensor;
};

/* Two triangle waves; all numbers are exact. */
std::vector<float> make_series(int64_t n)
{
    std::vector<float> series;

    for (int64_t k = 0; k < n; k++)
        series.push_back(
            float(std::labs(k % 32 - 16) + std::labs(k % 24 - 12)) / 16);
    return series;
}

void train(const char *path, int64_t steps)
{
    std::vector<float> series = make_series(steps * rows + width);
    const model_ptr model = open_model(path);
    const session_ptr session = make_session(model.get());

    for (int64_t k = 0; k < steps; k++) {
        const view x(series, k * rows, width), y(series, k * rows + width, 1);
        const DLTensor *const inputs[] = {x.get(), y.get()};
        penstock_step step = PENSTOCK_INIT(step);

        call(penstock_train_step, session.get(), inputs, size_t(2), &step);
        std::printf("step %lld: loss %.17g\n", (long long)step.step, step.loss);
    }
}

} // namespace

int main(int argc, char **argv)
{
    const long steps = argc > 2 ? std::atol(argv[2]) : 200;

    if (argc < 2 || steps < 1 || steps > 1000000) {
        std::fprintf(stderr, "usage: windows MODEL.pt2 [STEPS]\n");
        return 64;
    }
    try {
        train(argv[1], steps);
    } catch (const std::exception &e) {
        std::fprintf(stderr, "windows: %s\n", e.what());
        return 1;
    }
    return 0;
}
