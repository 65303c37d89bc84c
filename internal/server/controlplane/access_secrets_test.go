package controlplane_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/internal/server/controlplane"
	"slipway.dev/slipway/internal/server/keyrotation"
)

// plainText is the content of the Secrets of tests.
const plainText = "correct-horse-battery-staple"

// createSecret creates a Secret with the plain text.
func createSecret(t testing.TB, namespace, name string) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"password": plainText}}
	made, err := server.Client(t).CoreV1().Secrets(namespace).Create(t.Context(), secret, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// readRaw returns the stored value of a Secret.
func readRaw(t testing.TB, namespace, name string) []byte {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"unix://" + server.Dir.Path("etcd", "client.sock")}, DialTimeout: waitTime,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	found, err := client.Get(t.Context(), controlplane.DefaultPrefix+"/secrets/"+namespace+"/"+name)
	if err != nil || len(found.Kvs) != 1 {
		t.Fatalf("got %v, %v", found, err)
	}
	return found.Kvs[0].Value
}

// requireKey requires that a Secret is encrypted with the newest key.
func requireKey(t testing.TB, namespace, name string) {
	t.Helper()
	names, err := server.Config.Keys.EncryptionKeyNames()
	if err != nil {
		t.Fatal(err)
	}
	begin, _, _ := bytes.Cut(readRaw(t, namespace, name), []byte(":"+names[0]+":"))
	if string(begin) != "k8s:enc:secretbox:v1" {
		t.Errorf("Secret %s is not encrypted with key %s of %q", name, names[0], names)
	}
}

// TestSecrets_AreEncryptedOnDisk looks for the plain text in all files of etcd.
func TestSecrets_AreEncryptedOnDisk(t *testing.T) {
	namespace := server.NewNamespace(t)
	createSecret(t, namespace, "a")
	requireKey(t, namespace, "a")
	if findInFiles(t, server.Dir.Path("etcd"), plainText) {
		t.Error("the plain text of a Secret is in the files of etcd")
	}
	public := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"a": "public-" + namespace}}
	if _, err := server.Client(t).CoreV1().ConfigMaps(namespace).Create(t.Context(), public, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if !findInFiles(t, server.Dir.Path("etcd"), "public-"+namespace) {
		t.Error("the test does not find the content of a ConfigMap either")
	}
}

// findInFiles reports whether a file below a directory has a text.
func findInFiles(t testing.TB, dir, text string) (found bool) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		found = found || bytes.Contains(content, []byte(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A stoppingRotation fails at one call, as if the process had ended there.
type stoppingRotation struct {
	keyrotation.Keys
	keyrotation.Waiter
	calls int // that succeed before
}

var errStopped = errors.New("stopped here")

func (s *stoppingRotation) count() error {
	if s.calls--; s.calls < 0 {
		return errStopped
	}
	return nil
}

func (s *stoppingRotation) AddEncryptionKey() (string, error) {
	if err := s.count(); err != nil {
		return "", err
	}
	return s.Keys.AddEncryptionKey()
}

func (s *stoppingRotation) PromoteEncryptionKey(name string) error {
	if err := s.count(); err != nil {
		return err
	}
	return s.Keys.PromoteEncryptionKey(name)
}

func (s *stoppingRotation) PruneEncryptionKeys() error {
	if err := s.count(); err != nil {
		return err
	}
	return s.Keys.PruneEncryptionKeys()
}

func (s *stoppingRotation) WaitForEncryptionKeys(ctx context.Context) error {
	if err := s.count(); err != nil {
		return err
	}
	return s.Waiter.WaitForEncryptionKeys(ctx)
}

// TestRotation_ContinuesAfterEachInterruption stops a rotation before each of its steps and
// starts it again. All Secrets can be read and written all the time.
func TestRotation_ContinuesAfterEachInterruption(t *testing.T) {
	namespace, client, keys := server.NewNamespace(t), server.Client(t), server.Config.Keys
	for _, name := range []string{"a", "b", "c"} {
		createSecret(t, namespace, name)
	}
	reading, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- readSecrets(reading, t, namespace) }()
	for calls := 0; ; calls++ {
		before, err := keys.EncryptionKeyNames()
		if err != nil {
			t.Fatal(err)
		}
		stopping := &stoppingRotation{keys, server.Server, calls}
		_, err = keyrotation.Rotate(t.Context(), stopping, stopping, client)
		if err == nil {
			break
		}
		if !errors.Is(err, errStopped) {
			t.Fatalf("interrupted after %d steps: %v", calls, err)
		}
		createSecret(t, namespace, "after-"+string(rune('a'+calls)))
		result, err := keyrotation.Rotate(t.Context(), keys, server.Server, client)
		if err != nil {
			t.Fatalf("continued after %d steps: %v", calls, err)
		}
		after, err := keys.EncryptionKeyNames()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{result.Key}, after); diff != "" || slices.Contains(before, result.Key) && calls < 1 {
			t.Errorf("after %d steps: keys before %q, after %q\n%s", calls, before, after, diff)
		}
		list, err := client.CoreV1().Secrets(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range list.Items {
			requireKey(t, namespace, secret.Name)
			if string(secret.Data["password"]) != plainText {
				t.Errorf("Secret %s has another content", secret.Name)
			}
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// readSecrets reads and writes a Secret until ctx ends.
func readSecrets(ctx context.Context, t testing.TB, namespace string) error {
	secrets := server.Client(t).CoreV1().Secrets(namespace)
	for {
		secret, err := secrets.Get(ctx, "a", metav1.GetOptions{})
		if err == nil && string(secret.Data["password"]) != plainText {
			return errors.New("the Secret has another content")
		}
		if err == nil {
			secret.Labels = map[string]string{"written": time.Now().Format("150405.000000")}
			_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case apierrors.IsTooManyRequests(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err): // it is busy
			pause(ctx, waitPeriod)
		case err != nil && !apierrors.IsConflict(err):
			return err
		}
	}
}

// TestTokens_AreRevoked deletes the object that a token is bound to.
func TestTokens_AreRevoked(t *testing.T) {
	t.Parallel() // the server remembers a good token for 10 seconds
	namespace := server.NewNamespace(t)
	account := newAccount(t, namespace, "robot")
	secret := createSecret(t, namespace, "token-of-ci")
	bound := requestToken(t, namespace, "robot", &authenticationv1.BoundObjectReference{
		APIVersion: "v1", Kind: "Secret", Name: secret.Name, UID: secret.UID,
	})
	const name = "system:serviceaccount:"
	waitForName(t, bound, name+namespace+":robot")
	if err := server.Client(t).CoreV1().Secrets(namespace).Delete(t.Context(), secret.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitForName(t, bound, "")
	waitForName(t, account.BearerToken, name+namespace+":robot")
	if err := server.Client(t).CoreV1().ServiceAccounts(namespace).Delete(t.Context(), "robot", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitForName(t, account.BearerToken, "")
}

// An auditEvent is the tested part of a line of the audit log.
type auditEvent struct {
	Verb      string `json:"verb"`
	ObjectRef struct {
		Resource, Namespace, Name string
	} `json:"objectRef"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	RequestObject  json.RawMessage `json:"requestObject"`
	ResponseObject json.RawMessage `json:"responseObject"`
}

// TestAudit_HasWritesWithoutBodies writes and reads a Secret.
func TestAudit_HasWritesWithoutBodies(t *testing.T) {
	namespace := server.NewNamespace(t)
	createSecret(t, namespace, "a")
	secrets := server.Client(t).CoreV1().Secrets(namespace)
	if _, err := secrets.Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := secrets.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	var got []string
	waitUntil(t, "the audit log has the deletion", func(context.Context) (bool, error) {
		text, err := os.ReadFile(server.Dir.Path("audit", "audit.log"))
		if err != nil {
			return false, err
		}
		if strings.Contains(string(text), plainText) {
			t.Fatal("the audit log has the content of a Secret")
		}
		got = readAudit(t, text, namespace)
		return slices.Contains(got, "delete a by slipway:admin"), nil
	})
	if diff := cmp.Diff([]string{"create a by slipway:admin", "delete a by slipway:admin"}, got); diff != "" {
		t.Error(diff)
	}
}

// readAudit returns the audited requests for the Secrets of a namespace.
func readAudit(t *testing.T, text []byte, namespace string) (out []string) {
	t.Helper()
	for line := range bytes.Lines(text) {
		var e auditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			continue // the line is being written
		}
		if e.RequestObject != nil || e.ResponseObject != nil {
			t.Errorf("the audit log has a body: %.200s", line)
		}
		if e.ObjectRef.Resource == "secrets" && e.ObjectRef.Namespace == namespace {
			out = append(out, e.Verb+" "+e.ObjectRef.Name+" by "+e.User.Username)
		}
	}
	return out
}
