// Symbols are hidden unless marked: what a user may call is what carries this mark.
#pragma once

#if defined(CONVOY_STATIC)
#define CONVOY_API
#else
#define CONVOY_API __attribute__((visibility("default")))
#endif
