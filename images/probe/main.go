// Probe asks a server once and exits 0 if it is alive: the check of a script in
// an image that has no shell.
//
//	probe URL
//
// Any answer below 500 is one of a server that is alive, one that wants
// credentials among them.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"
)

// version is set by the linker.
var version = "unknown"

// timeout bounds the whole question.
const timeout = 3 * time.Second

func main() {
	if len(os.Args) == 2 && os.Args[1] == "version" {
		_, _ = os.Stdout.WriteString("probe " + version + "\n")
		return
	}
	if err := probeServer(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func probeServer(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("usage: probe URL | version")
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, args[0], nil)
	if err != nil {
		return err
	}
	client := &http.Client{
		// The probe finds out whether the server is alive. It does not verify the
		// server's identity, because it sends no data and ignores the response body.
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, //nolint:gosec // see above
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	_ = resp.Body.Close() // the status line is the answer
	if resp.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("%s answers %s", args[0], resp.Status)
	}
	return nil
}
