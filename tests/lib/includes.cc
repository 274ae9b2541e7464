// SPDX-License-Identifier: Apache-2.0
/* The header in C++11: compiled by lib-cplusplus with all warnings. */
#include <penstock.h>

#include <cstdio>

int main()
{
    struct penstock_error error = PENSTOCK_INIT(error);
    struct penstock_open_config config = PENSTOCK_INIT(config);
    penstock_model *model = nullptr;

    if (error.size != sizeof(error) || config.options != nullptr)
        return 1;
    if (penstock_open("/nowhere.pt2", &config, &model, &error) == 0)
        return 1;
    std::puts(error.id);
    return 0;
}
