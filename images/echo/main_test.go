package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

func TestRunCommand_ServesAndRequestsHostname(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.HandlerFunc(replyHostname))
	defer srv.Close()
	missing := httptest.NewServer(http.NotFoundHandler())
	defer missing.Close()
	tests := map[string]struct {
		reason string
		args   []string
		out    string
		fails  bool
	}{
		"get":       {"the server answers with its host name", []string{"get", srv.URL}, host + "\n", false},
		"not found": {"only 200 counts as an answer", []string{"get", missing.URL}, "404 page not found\n", true},
		"version":   {"a test asks each program its version", []string{"version"}, "echo unknown\n", false},
		"resolve":   {"names resolve as in the pod", []string{"resolve", "localhost"}, "", false},
		"no URL":    {"a verb without its argument is refused", []string{"get"}, "", true},
		"unknown":   {"so is another verb", []string{"dance"}, "", true},
		"too many":  {"and a surplus argument", []string{"get", "a", "b"}, "", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := runCommand(t.Context(), tt.args, &out)
			if (err != nil) != tt.fails {
				t.Fatalf("%s: error %v", tt.reason, err)
			}
			if tt.out != "" && out.String() != tt.out {
				t.Errorf("%s: got %q, want %q", tt.reason, out.String(), tt.out)
			}
			if tt.args[0] == "resolve" && !strings.Contains(out.String(), "1") {
				t.Errorf("%s: got %q", tt.reason, out.String())
			}
		})
	}
}
