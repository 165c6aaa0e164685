/* The process that holds a pod's namespaces: sleeps until told to end, reaps children that are re-parented to it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int number) {
  (void)number;
  _exit(0);
}

static void reap(int number) {
  (void)number;
  while (waitpid(-1, NULL, WNOHANG) > 0)
    ;
}

int main(void) {
  struct sigaction ending = {.sa_handler = end};
  struct sigaction reaping = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
  if (sigaction(SIGINT, &ending, NULL) || sigaction(SIGTERM, &ending, NULL) || sigaction(SIGCHLD, &reaping, NULL)) {
    perror("pause");
    return EXIT_FAILURE;
  }
  for (;;)
    pause();
}
