/* What the tests' containers run: one static program, one verb each.
 *   report TEXT          write the termination message and end
 *   serve PORT           answer every connection with "hello from <hostname>"
 *   connect              connect to the API server's ClusterIP (KUBERNETES_SERVICE_HOST), print "reached", end
 *   fail CODE            print a line on standard error and end with that status
 * A program given nothing sleeps. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int report(const char *text) {
    FILE *f = fopen("/dev/termination-log", "w");
    if (!f) { perror("termination log"); return 1; }
    fputs(text, f);
    return fclose(f);
}

static int serve(int port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = INADDR_ANY};
    char host[256] = "", answer[512];
    int one = 1, s = socket(AF_INET, SOCK_STREAM, 0);
    gethostname(host, sizeof host - 1);
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(s, (struct sockaddr *)&a, sizeof a) || listen(s, 16)) { perror("listen"); return 1; }
    printf("serving on %d\n", port);
    fflush(stdout);
    for (;;) {
        int c = accept(s, NULL, NULL);
        if (c < 0) continue;
        int n = snprintf(answer, sizeof answer, "hello from %s\n", host);
        if (write(c, answer, n) != n) perror("write");
        close(c);
    }
}

static int reach(void) {
    struct sockaddr_in a = {.sin_family = AF_INET};
    const char *host = getenv("KUBERNETES_SERVICE_HOST"), *port = getenv("KUBERNETES_SERVICE_PORT");
    if (!host || !port) { fprintf(stderr, "no service environment\n"); return 1; }
    a.sin_port = htons(atoi(port));
    inet_pton(AF_INET, host, &a.sin_addr);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(s, (struct sockaddr *)&a, sizeof a)) { perror(host); return 1; }
    printf("reached\n");
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 2 && !strcmp(argv[1], "report")) return report(argv[2]);
    if (argc > 2 && !strcmp(argv[1], "serve")) return serve(atoi(argv[2]));
    if (argc > 1 && !strcmp(argv[1], "connect")) return reach();
    if (argc > 2 && !strcmp(argv[1], "fail")) { fprintf(stderr, "failing on purpose\n"); return atoi(argv[2]); }
    for (;;) pause();
}
