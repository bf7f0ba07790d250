/*
 * Limits what a submission prints. runner.c and watched.c include this file. Output
 * beyond the limit is dropped before it is formatted, so that a correct submission that
 * prints in every call is not too slow to be judged.
 */
#include <stdarg.h>
#include <stdio.h>

enum { MOST_PRINTED = 1 << 16 };
static size_t printed;

static int is_dropped(FILE *to) { return printed >= MOST_PRINTED && (to == stdout || to == stderr); }

static int counted(int n) {
    printed += n > 0 ? (size_t)n : 0;
    return n;
}

int submission_vfprintf(FILE *to, const char *format, va_list values);
int submission_vprintf(const char *format, va_list values);
int submission_fprintf(FILE *to, const char *format, ...);
int submission_printf(const char *format, ...);
int submission_fputs(const char *text, FILE *to);
int submission_puts(const char *text);
int submission_fputc(int c, FILE *to);
int submission_putc(int c, FILE *to);
int submission_putchar(int c);
size_t submission_fwrite(const void *from, size_t size, size_t n, FILE *to);

int submission_vfprintf(FILE *to, const char *format, va_list values) {
    return is_dropped(to) ? 0 : counted(vfprintf(to, format, values));
}

int submission_vprintf(const char *format, va_list values) { return submission_vfprintf(stdout, format, values); }

int submission_fprintf(FILE *to, const char *format, ...) {
    va_list values;
    va_start(values, format);
    int n = submission_vfprintf(to, format, values);
    va_end(values);
    return n;
}

int submission_printf(const char *format, ...) {
    va_list values;
    va_start(values, format);
    int n = submission_vfprintf(stdout, format, values);
    va_end(values);
    return n;
}

int submission_fputs(const char *text, FILE *to) {
    if (is_dropped(to)) {
        return 1;
    }
    counted((int)strlen(text));
    return fputs(text, to);
}

int submission_puts(const char *text) {
    if (is_dropped(stdout)) {
        return 1;
    }
    counted((int)strlen(text) + 1);
    return puts(text);
}

int submission_fputc(int c, FILE *to) {
    if (is_dropped(to)) {
        return (unsigned char)c;
    }
    counted(1);
    return fputc(c, to);
}

int submission_putc(int c, FILE *to) { return submission_fputc(c, to); }

int submission_putchar(int c) { return submission_fputc(c, stdout); }

size_t submission_fwrite(const void *from, size_t size, size_t n, FILE *to) {
    if (is_dropped(to)) {
        return n;
    }
    size_t written = fwrite(from, size, n, to);
    printed += written * size;
    return written;
}
