package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"slipway.dev/slipway/internal/server/adminclient"
	"slipway.dev/slipway/internal/server/controlplane"
	"slipway.dev/slipway/internal/server/keys"
)

// TestCommands_RefuseBadInput compares exit codes and the ids of refusals.
func TestCommands_RefuseBadInput(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "absent")
	for _, tc := range []struct {
		name, reason string
		args         []string
		code         int
		id           string
	}{
		{"no command", "help", nil, exitDone, ""},
		{"unknown command", "a typo", []string{"serve"}, exitRefused, ""},
		{"unknown flag", "a typo", []string{"server", "--lisen", "a"}, exitRefused, ""},
		{"bad value", "not a number", []string{"server", "--etcd-quota", "big"}, exitRefused, ""},
		{"argument", "server has no arguments", []string{"server", "now"}, exitRefused, ""},
		{"missing flag", "the user is required", []string{"kubeconfig"}, exitRefused, ""},
		{"address", "it has no port", []string{"server", "--listen", "127.0.0.1"}, exitRefused, idFlag},
		{"public address", "its certificate would have no name", []string{"server", "--listen", "0.0.0.0:7443"}, exitRefused, idNoName},
		{"every address", "the same with an empty host", []string{"server", "--listen", ":7443"}, exitRefused, idNoName},
		{"files without etcd", "they are for an external etcd", []string{"server", "--etcd-ca-file", "a"}, exitRefused, idFlag},
		{
			"certificate without key", "both are needed",
			[]string{"server", "--etcd-servers", "https://127.0.0.1:1", "--etcd-cert-file", "a"},
			exitRefused, idFlag,
		},
		{"small quota", "an empty server has 20 MiB", []string{"server", "--etcd-quota", "31"}, exitRefused, idFlag},
		{"short compaction", "clients need old revisions", []string{"server", "--compaction-interval", "1s"}, exitRefused, idFlag},
		{"short defragmentation", "writes wait for it", []string{"server", "--defragment-interval", "1s"}, exitRefused, idFlag},
		{"short lifetime", "clients need time to read it", []string{"server", "--certificate-lifetime", "1s"}, exitRefused, idFlag},
		{"archive", "the directory of a process is not known", []string{"server", "--archive-dir", "archive"}, exitRefused, idFlag},
		{"log format", "text or json", []string{"server", "--log-format", "xml"}, exitRefused, idFlag},
		{"no cluster", "this is not a Pod", []string{"operator", "--data-dir", empty}, exitRefused, idOperatorFlag},
		{"no kubeconfig", "a typo", []string{"operator", "--kubeconfig", empty, "--data-dir", empty}, exitRefused, idOperatorFlag},
		{"webhook address", "it has no port", []string{"operator", "--webhook-listen", "9443"}, exitRefused, idOperatorFlag},
		{"probe port", "it is too large", []string{"operator", "--probe-listen", ":99999"}, exitRefused, idOperatorFlag},
		{"metrics address", "0 means none", []string{"operator", "--metrics-listen", ""}, exitRefused, idOperatorFlag},
		{"executor", "in-process or job", []string{"operator", "--executor", "pod"}, exitRefused, idOperatorFlag},
		{"archive of an operator", "no absolute path", []string{"operator", "--archive-dir", "archive"}, exitRefused, idOperatorFlag},
		{"no operation", "it is required", []string{"run-operation", "--namespace", "team"}, exitRefused, idOperatorFlag},
		{
			"operation without cluster", "this is not a Pod",
			[]string{"run-operation", "--namespace", "team", "--operation", "x", "--data-dir", empty},
			exitRefused, idOperatorFlag,
		},
		{"second server", "one process uses the directory", []string{"server", "--listen", "127.0.0.1:0"}, exitRefused, "data-dir-in-use"},
		{"status format", "text or json", []string{"status", "-o", "yaml"}, exitRefused, ""},
		{"status without server", "nothing runs there", []string{"status", "--data-dir", empty}, exitRefused, "data-dir-missing"},
		{
			"rotation without server", "nothing runs there",
			[]string{"rotate-encryption-key", "--data-dir", empty},
			exitRefused, "data-dir-missing",
		},
		{"reserved user", "it has all rights", []string{"kubeconfig", "--user", "system:admin"}, exitRefused, "server-user-invalid"},
		{
			"reserved group", "it has all rights",
			[]string{"kubeconfig", "--user", "jane", "--group", "system:masters"},
			exitRefused, "server-user-invalid",
		},
		{
			"long lifetime", "a certificate cannot be revoked",
			[]string{"kubeconfig", "--user", "jane", "--ttl", "9000h"},
			exitRefused, "server-user-invalid",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := runCommand(t, tc.args...)
			if got.code != tc.code || !strings.Contains(got.err, tc.id) || tc.code != exitDone && got.out != "" {
				t.Errorf("%s: got %+v, want exit code %d and the id %q", tc.reason, got, tc.code, tc.id)
			}
			if tc.code == exitRefused && !strings.Contains(got.err, "hint: ") {
				t.Errorf("no hint: %s", got.err)
			}
		})
	}
}

func TestMain_ReportsInterruption(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	out := &lockedBuffer{}
	code := Main(ctx, []string{"kubeconfig", "--user", "jane", "--data-dir", serverDir}, Streams{Out: out, Err: out})
	if code != exitInterrupted {
		t.Errorf("got exit code %d: %s", code, out)
	}
}

func TestStatus_ShowsRunningServer(t *testing.T) {
	eventually(t, func() string {
		text := runCommand(t, "status")
		if text.code != exitDone || !strings.HasPrefix(text.out, "Server https://127.0.0.1:") || !strings.Contains(text.out, " is ready.\n") {
			return fmt.Sprintf("got %+v", text)
		}
		return ""
	})
	want := map[string]metav1.ConditionStatus{"ControllersHeld": metav1.ConditionFalse, "DatabaseSpaceLow": metav1.ConditionFalse}
	eventually(t, func() string {
		got := runCommand(t, "status", "-o", "json")
		var status serverStatus
		if err := json.Unmarshal([]byte(got.out), &status); err != nil || got.code != exitDone {
			return fmt.Sprintf("%v in %+v", err, got)
		}
		states := map[string]metav1.ConditionStatus{}
		for _, c := range status.Conditions {
			states[c.Type] = c.Status
		}
		if diff := cmp.Diff(want, states); diff != "" || !status.Ready {
			return fmt.Sprintf("ready: %v\n%s", status.Ready, diff)
		}
		return ""
	})
}

// TestKubeconfig_WritesPrivateFile issues a kubeconfig into a file and to standard output.
func TestKubeconfig_WritesPrivateFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "jane.kubeconfig")
	got := runCommand(t, "kubeconfig", "--user", "jane", "--group", "platform", "--ttl", "1h", "--out", file)
	if got.code != exitDone || got.out != "" || !strings.Contains(got.err, file) {
		t.Fatalf("got %+v", got)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode() != 0o600 {
		t.Fatalf("got mode %v, %v", info.Mode(), err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	if name := whoIs(t, config); name != "jane" {
		t.Errorf("the user is %q", name)
	}
	if got = runCommand(t, "kubeconfig", "--user", "ben"); got.code != exitDone || got.err != "" {
		t.Fatalf("got %+v", got)
	}
	if config, err = clientcmd.RESTConfigFromKubeConfig([]byte(got.out)); err != nil {
		t.Fatal(err)
	}
	if name := whoIs(t, config); name != "ben" {
		t.Errorf("the user is %q", name)
	}
}

// whoIs returns the name of a caller, as the server sees it.
func whoIs(t *testing.T, config *rest.Config) string {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	review, err := client.AuthenticationV1().SelfSubjectReviews().
		Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.UserInfo.Username
}

// TestRotateEncryptionKey_LeavesOneNewKey rotates twice. The Secrets keep their content.
func TestRotateEncryptionKey_LeavesOneNewKey(t *testing.T) {
	config, err := adminclient.Open(serverDir)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	secrets := client.CoreV1().Secrets("default")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "rotated-"}, StringData: map[string]string{"a": "b"}}
	if secret, err = secrets.Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		before := keyNames(t)
		got := runCommand(t, "rotate-encryption-key")
		after := keyNames(t)
		if got.code != exitDone || len(after) != 1 || after[0] == before[0] || !strings.Contains(got.out, after[0]) {
			t.Errorf("got %+v, keys before %q, after %q", got, before, after)
		}
	}
	secret, err = secrets.Get(t.Context(), secret.Name, metav1.GetOptions{})
	if err != nil || string(secret.Data["a"]) != "b" {
		t.Errorf("the Secret has %q, %v", secret.Data, err)
	}
}

// keyNames returns the names of the encryption keys of the server.
func keyNames(t *testing.T) []string {
	t.Helper()
	k, err := keys.Open(filepath.Join(serverDir, "keys"), false)
	if err != nil {
		t.Fatal(err)
	}
	names, err := k.EncryptionKeyNames()
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestRelease_DoesNothingWithoutHold releases a server that is not on hold.
func TestRelease_DoesNothingWithoutHold(t *testing.T) {
	if got := runCommand(t, "release"); got.code != exitDone {
		t.Errorf("got %+v", got)
	}
}

// TestEndpoints_RefuseOthers asks for a rotation without the rights of an administrator.
func TestEndpoints_RefuseOthers(t *testing.T) {
	for _, path := range []string{pathRotate, pathRelease} {
		requireRefused(t, path)
	}
}

// requireRefused requires that a path of the server refuses a user without rights and a caller
// without credentials, with the statuses for this.
func requireRefused(t *testing.T, path string) {
	t.Helper()
	text := runCommand(t, "kubeconfig", "--user", "eve")
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(text.out))
	if err != nil {
		t.Fatalf("%v in %+v", err, text)
	}
	for _, tc := range []struct {
		name   string
		config *rest.Config
		want   int
	}{
		{"eve", config, http.StatusForbidden},
		{"anonymous", rest.AnonymousClientConfig(config), http.StatusUnauthorized},
	} {
		eventually(t, func() string {
			got, err := postStatus(t.Context(), tc.config, controlplane.PathPrefix+path)
			if err != nil || got == http.StatusTooManyRequests || got >= http.StatusInternalServerError { // the server is busy
				return fmt.Sprintf("%s as %s: %d, %v", path, tc.name, got, err)
			}
			if got != tc.want {
				t.Errorf("%s as %s: got %d, want %d", path, tc.name, got, tc.want)
			}
			return ""
		})
	}
}

// postStatus sends a request and returns the status of its response.
func postStatus(ctx context.Context, config *rest.Config, path string) (int, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return 0, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, config.Host+path, strings.NewReader("{}"))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}
