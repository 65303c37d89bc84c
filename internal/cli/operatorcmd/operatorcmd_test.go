package operatorcmd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"slipway.dev/slipway/internal/cli/program"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/operator/manifests"
	"slipway.dev/slipway/internal/version"
)

// A result is the output of a command, the questions that it has asked, and its error.
type result struct {
	out, messages string
	questions     []string
	err           error
}

// runCommand runs `slipway operator` with arguments. The user does not agree to any question.
func runCommand(t *testing.T, args ...string) (r result) {
	t.Helper()
	var out, messages bytes.Buffer
	cmd := NewCommand(program.Program{
		Out: &out, Err: &messages,
		WriteResult: func(_ any, text func(io.Writer) error) error { return text(&out) },
		AskYesNo: func(_ context.Context, question string) error {
			r.questions = append(r.questions, question)
			return errors.New("the user does not agree")
		},
	})
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	r.err = cmd.ExecuteContext(t.Context())
	r.out, r.messages = out.String(), messages.String()
	return r
}

// writeKubeconfig writes the kubeconfig of an API at which nothing listens.
func writeKubeconfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
		users: [{name: a, user: {}}], clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestManifests_AreThoseOfInstall(t *testing.T) {
	r := runCommand(t, "manifests", "--replicas", "3", "--executor", "job", "--image", "registry.example.com/slipwayd:v1")
	if r.err != nil {
		t.Fatal(r.err)
	}
	want, err := manifests.Render(manifests.Options{
		Version: version.Get().Version, Replicas: 3, Executor: manifests.ExecutorJob, Image: "registry.example.com/slipwayd:v1",
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.out != string(want) || !strings.Contains(r.out, "replicas: 3") || !strings.Contains(r.out, "registry.example.com/slipwayd:v1") {
		t.Error("the objects do not have the options of the command")
	}
}

// TestCommands_RefuseBadInput names the value that is wrong. No command reaches an API.
func TestCommands_RefuseBadInput(t *testing.T) {
	config := writeKubeconfig(t)
	missing := filepath.Join(t.TempDir(), "missing")
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"executor", []string{"install", "--kubeconfig", config, "--executor", "cron"}, "cron"},
		{"replicas", []string{"install", "--kubeconfig", config, "--replicas=-1"}, "replicas"},
		{"image", []string{"manifests", "--image", "a b"}, "a b"},
		{"kubeconfig", []string{"install", "--kubeconfig", missing}, missing},
		{"context", []string{"status", "--kubeconfig", config, "--context", "other"}, "other"},
		{"program", []string{"image", "--program", missing}, missing},
		{"no program", []string{"image", "--program", config}, "not a program for Linux"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := runCommand(t, c.args...)
			var list diag.List
			if !errors.As(r.err, &list) || !strings.Contains(r.err.Error(), c.want) || list[0].Hint == "" {
				t.Errorf("got %v, want an error with %q and a hint", r.err, c.want)
			}
			if r.out != "" {
				t.Errorf("the command has written %q", r.out)
			}
		})
	}
}

// TestImage_KeepsFileAfterError does not replace an archive, and leaves no other file.
func TestImage_KeepsFileAfterError(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "slipwayd.tar")
	if err := os.WriteFile(out, []byte("former"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := runCommand(t, "image", "--program", out, "--out", out); r.err == nil {
		t.Error("an archive is not a program")
	}
	if text, err := os.ReadFile(out); err != nil || string(text) != "former" {
		t.Errorf("the archive has %q, %v", text, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%d files remain, %v", len(left), err)
	}
}

// TestUninstall_AsksFirst asks about exactly what is removed.
func TestUninstall_AsksFirst(t *testing.T) {
	config := writeKubeconfig(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "Remove the operator?"},
		{[]string{"--with-data"}, "Remove the operator, its finished operations, and the definitions of Clusters?"},
	} {
		r := runCommand(t, slices.Concat([]string{"uninstall", "--kubeconfig", config}, c.args)...)
		if !slices.Equal(r.questions, []string{c.want}) || r.err == nil || r.err.Error() != "the user does not agree" {
			t.Errorf("uninstall %v asks %q and ends with %v", c.args, r.questions, r.err)
		}
	}
}
