// Echo is a small HTTP server and client for trying a cluster. The server responds with
// its host name. The client sends a request and exits with 0 if it receives a response.
//
//	echo [serve]        serve on :8080 until SIGTERM ($ADDRESS sets another address)
//	echo get URL        print the body of the response
//	echo resolve NAME   print the addresses of a DNS name
//	echo sleep          do nothing until SIGTERM
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// version is set by the linker.
var version = "unknown"

// timeout bounds a client's question and a server's farewell.
const timeout = 5 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := runCommand(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "echo:", err)
		os.Exit(1)
	}
}

func runCommand(ctx context.Context, args []string, out io.Writer) error {
	verb, arg := "serve", ""
	switch len(args) {
	case 0:
	case 1:
		verb = args[0]
	case 2:
		verb, arg = args[0], args[1]
	default:
		return errors.New("too many arguments")
	}
	switch {
	case verb == "serve" && arg == "":
		return serveHTTP(ctx, cmp.Or(os.Getenv("ADDRESS"), ":8080"))
	case verb == "sleep" && arg == "":
		<-ctx.Done()
		return nil
	case verb == "version" && arg == "":
		_, err := fmt.Fprintln(out, "echo", version)
		return err
	case verb == "get" && arg != "":
		return getURL(ctx, arg, out)
	case verb == "resolve" && arg != "":
		return resolveHost(ctx, arg, out)
	}
	return errors.New("usage: echo [serve | get URL | resolve NAME | sleep | version]")
}

// replyHostname responds to every request with the host's name.
func replyHostname(w http.ResponseWriter, _ *http.Request) {
	name, err := os.Hostname()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprintln(w, name)
}

func serveHTTP(ctx context.Context, address string) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: http.HandlerFunc(replyHostname), ReadHeaderTimeout: timeout}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	err = srv.Shutdown(last)
	if e := <-done; !errors.Is(e, http.ErrServerClosed) {
		err = errors.Join(err, e)
	}
	return err
}

func getURL(ctx context.Context, url string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(out, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	return nil
}

func resolveHost(ctx context.Context, host string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, strings.Join(addrs, "\n"))
	return err
}
