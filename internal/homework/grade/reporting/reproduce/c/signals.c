
/* A call does not return. */
static void died(int number) {
    printf("signal %d: a call does not return\n", number);
    fflush(stdout);
    _Exit(1);
}
