package secret_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/secret"
)

const canary = "canary-7f3a"

func TestString_NeverPrints(t *testing.T) {
	s := secret.New(canary)
	type exported struct{ Password secret.String }
	type unexported struct{ password secret.String }
	out := map[string]func(*bytes.Buffer) error{}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T", "%p"} {
		for name, arg := range map[string]any{
			"value": s, "pointer": &s, "slice": []secret.String{s}, "field": exported{s},
			"unexported field": unexported{s}, "map": map[string]secret.String{"a": s},
			"map of unexported": map[string]unexported{"a": {s}}, "nested pointer": &unexported{s},
		} {
			out["fmt "+verb+" "+name] = func(b *bytes.Buffer) error {
				_, err := fmt.Fprintf(b, verb, arg)
				return err
			}
		}
	}
	out["json"] = func(b *bytes.Buffer) error { return json.NewEncoder(b).Encode(exported{s}) }
	out["yaml"] = func(b *bytes.Buffer) error { return yaml.NewEncoder(b).Encode(exported{s}) }
	out["slog text"] = func(b *bytes.Buffer) error {
		slog.New(slog.NewTextHandler(b, nil)).Info("x", "s", s, "in", exported{s}, "un", unexported{s})
		return nil
	}
	out["slog json"] = func(b *bytes.Buffer) error {
		slog.New(slog.NewJSONHandler(b, nil)).Info("x", "s", s, "in", exported{s})
		return nil
	}
	out["error"] = func(b *bytes.Buffer) error {
		_, err := fmt.Fprint(b, fmt.Errorf("logging in with %v: %w", s, errors.New("no")))
		return err
	}
	for name, print := range out {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := print(&b); err != nil {
				t.Fatal(err)
			}
			for _, form := range []string{canary, hex.EncodeToString([]byte(canary)), base64.StdEncoding.EncodeToString([]byte(canary))} {
				if strings.Contains(strings.ToLower(b.String()), strings.ToLower(form)) {
					t.Errorf("the secret shows: %s", b.String())
				}
			}
		})
	}
}

func TestString_ComparesText(t *testing.T) {
	var none secret.String
	if !none.IsZero() || none.Reveal() != "" || none.String() != "" || !secret.New("").IsZero() {
		t.Error("the zero value is not empty")
	}
	s := secret.New(canary)
	if s.Reveal() != canary || s.IsZero() || fmt.Sprintf("%q", s) != `"[redacted]"` {
		t.Errorf("a secret of its own: %v", s)
	}
	if !s.Equal(secret.New(canary)) || s.Equal(none) {
		t.Error("Equal compares something else than the text")
	}
}

func TestResolve_ReadsEverySource(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Setenv("SLIPWAY_TEST_SECRET", canary)
	t.Setenv("SLIPWAY_TEST_EMPTY", "")
	for _, tc := range []struct {
		name, reason string
		src          v1alpha1.SecretSource
		want, err    string
	}{
		{"file", "an editor's last line break is not part of a password", v1alpha1.SecretSource{File: file("a", canary+"\n")}, canary, ""},
		{"crlf", "nor is a Windows one", v1alpha1.SecretSource{File: file("b", canary+"\r\n")}, canary, ""},
		{"spaces", "but spaces may be", v1alpha1.SecretSource{File: file("c", " "+canary+" \n\n")}, " " + canary + " \n", ""},
		{"env", "variables are taken as they are", v1alpha1.SecretSource{Env: "SLIPWAY_TEST_SECRET"}, canary, ""},
		{"no file", "the cause names the file", v1alpha1.SecretSource{File: filepath.Join(dir, "none")}, "", "no such file"},
		{"empty file", "an empty password is a mistake", v1alpha1.SecretSource{File: file("d", "\n")}, "", "is empty"},
		{"device", "reading ends", v1alpha1.SecretSource{File: "/dev/zero"}, "", "too large for a secret"},
		{"no variable", "unset differs from empty", v1alpha1.SecretSource{Env: "SLIPWAY_TEST_NONE"}, "", "is not set"},
		{"empty variable", "an empty password is a mistake", v1alpha1.SecretSource{Env: "SLIPWAY_TEST_EMPTY"}, "", "is empty"},
		{"both", "which one wins would be a guess", v1alpha1.SecretSource{File: "a", Env: "b"}, "", "exactly one"},
		{"neither", "nothing to read", v1alpha1.SecretSource{}, "", "exactly one"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := secret.ResolveSource(tc.src)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || strings.Contains(err.Error(), canary) {
					t.Fatalf("error %v, want %q: %s", err, tc.err, tc.reason)
				}
				return
			}
			if err != nil || got.Reveal() != tc.want {
				t.Fatalf("got %q, %v; want %q: %s", got.Reveal(), err, tc.want, tc.reason)
			}
		})
	}
}
