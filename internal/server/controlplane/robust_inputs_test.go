package controlplane_test

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/server/certificates"
	"slipway.dev/slipway/internal/server/controlplane"
	"slipway.dev/slipway/internal/server/controlplane/testserver"
)

// idsOf returns the ids of the messages of an error.
func idsOf(err error) (ids []string) {
	var list diag.List
	if errors.As(err, &list) {
		for _, d := range list {
			ids = append(ids, d.ID)
		}
	}
	return ids
}

// mustRefuse starts a server in this process, which must refuse to start with an id. It returns
// the error.
func mustRefuse(t *testing.T, data, id string, change func(*controlplane.Config)) error {
	t.Helper()
	begun := time.Now()
	s, err := testserver.Open(t.Context(), data, change)
	if err == nil {
		t.Errorf("the server has started: %v", s.Close(t.Context()))
		return nil
	}
	t.Logf("after %s: %v", time.Since(begun).Round(time.Millisecond), err)
	if diff := cmp.Diff([]string{id}, idsOf(err)); diff != "" {
		t.Errorf("ids of the messages:\n%s", diff)
	}
	return err
}

// externalEtcd starts an etcd as another program would, and returns its URL and a client. Without
// certificates, it has no TLS.
func externalEtcd(t *testing.T, tls transport.TLSInfo) (string, *clientv3.Client) {
	t.Helper()
	scheme := "http"
	if !tls.Empty() {
		scheme = "https"
	}
	var clients url.URL
	var e *embed.Etcd
	var err error
	for range attempts {
		clients = url.URL{Scheme: scheme, Host: freeAddress(t)}
		if e, err = startEtcd(t, clients, tls); !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	limit := time.NewTimer(brokenTime)
	defer limit.Stop()
	select {
	case <-e.Server.ReadyNotify():
	case <-limit.C:
		t.Fatal("the external etcd is not ready")
	}
	config := clientv3.Config{Endpoints: []string{clients.String()}}
	if !tls.Empty() {
		if config.TLS, err = tls.ClientConfig(); err != nil {
			t.Fatal(err)
		}
	}
	client, err := clientv3.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return clients.String(), client
}

// startEtcd starts an etcd in a new directory.
func startEtcd(t *testing.T, clients url.URL, tls transport.TLSInfo) (*embed.Etcd, error) {
	t.Helper()
	peers := url.URL{Scheme: "unix", Path: filepath.Join(t.TempDir(), "peer.sock")}
	c := embed.NewConfig()
	c.Dir = filepath.Join(t.TempDir(), "etcd")
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{clients}, []url.URL{clients}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peers}, []url.URL{peers}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.ClientTLSInfo = tls
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	return embed.StartEtcd(c)
}

// TestRobustEtcd_RefusesSilentAndForeign starts servers on an external etcd that does not respond,
// or whose data belongs to others.
func TestRobustEtcd_RefusesSilentAndForeign(t *testing.T) {
	t.Parallel() // it waits most of its time
	at, client := externalEtcd(t, transport.TLSInfo{})
	for key, value := range map[string]string{
		"/registry/pods/default/web": "pod", "/slipway.dev/server/other": "another server", "/other/configmaps/default/a": "map",
	} {
		if _, err := client.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	silent := "http://" + freeAddress(t)
	tests := []struct {
		name, reason, server, prefix, id string
	}{
		{"closed port", "nothing listens there", silent, "/registry", "server-etcd-unreachable"},
		{"no TLS", "the etcd does not use TLS", strings.Replace(at, "http:", "https:", 1), "/registry", "server-etcd-unreachable"},
		{"Kubernetes", "a Kubernetes cluster has its objects there", at, "/registry", "server-etcd-in-use"},
		{"another server", "its marker has another id", at, "/other", "server-etcd-of-another-server"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := mustRefuse(t, filepath.Join(t.TempDir(), "data"), test.id, func(c *controlplane.Config) {
				c.Etcd = controlplane.ExternalEtcd{Servers: []string{test.server}, Prefix: test.prefix}
			})
			if named := test.server; test.id != "server-etcd-of-another-server" && (err == nil || !strings.Contains(err.Error(), named)) {
				t.Errorf("the message does not name %s: %s", named, test.reason)
			}
		})
	}
}

// TestRobustEtcd_UsesClientCertificates starts a server on an external etcd that requires client
// certificates, next to data of a Kubernetes cluster.
func TestRobustEtcd_UsesClientCertificates(t *testing.T) {
	t.Parallel() // it waits most of its time
	pki := filepath.Join(t.TempDir(), "pki")
	made, err := certificates.Open(certificates.Options{Dir: pki, Fresh: true})
	if err != nil {
		t.Fatal(err)
	}
	serving := transport.TLSInfo{
		CertFile: made.ServingCertFile(), KeyFile: made.ServingKeyFile(), TrustedCAFile: made.CAFile(), ClientCertAuth: true,
		ClientCertFile: made.AdminCertFile(), ClientKeyFile: made.AdminKeyFile(),
	}
	at, client := externalEtcd(t, serving)
	if _, err := client.Put(t.Context(), "/registry/pods/default/web", "pod"); err != nil {
		t.Fatal(err)
	}
	etcd := controlplane.ExternalEtcd{
		Servers: []string{at}, Prefix: "/slipway", CAFile: made.CAFile(), CertFile: made.AdminCertFile(), KeyFile: made.AdminKeyFile(),
	}
	t.Run("without a certificate", func(t *testing.T) {
		mustRefuse(t, filepath.Join(t.TempDir(), "data"), "server-etcd-unreachable", func(c *controlplane.Config) {
			c.Etcd = etcd
			c.Etcd.CertFile, c.Etcd.KeyFile = "", ""
		})
	})
	c := startChild(t, filepath.Join(t.TempDir(), "data"), "", serverOptions{Etcd: etcd})
	if _, err := c.client(t).CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	found, err := client.Get(t.Context(), "/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range found.Kvs {
		key := string(kv.Key)
		if !strings.HasPrefix(key, "/slipway/") && !strings.HasPrefix(key, "/slipway.dev/") && key != "/registry/pods/default/web" {
			t.Errorf("key %s is outside of the prefix", key)
		}
	}
	c.stop(t)
}

// TestRobustDatabase_RefusesDamage starts servers whose database is damaged, or belongs to another
// server: no start hangs, ends the process or loses a write.
func TestRobustDatabase_RefusesDamage(t *testing.T) {
	base := filepath.Join(t.TempDir(), "data")
	c := startChild(t, base, "", serverOptions{})
	maps := c.client(t).CoreV1().ConfigMaps(metav1.NamespaceDefault)
	for i := range 20 {
		if err := createValue(t, maps, fmt.Sprintf("value-%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	c.stop(t)
	const damaged = "server-database-damaged"
	tests := []struct {
		name, reason, id string
		damage           func(t *testing.T, data string)
	}{
		{"truncated database", "etcd would end the process", damaged, func(t *testing.T, data string) {
			truncate(t, databaseFile(data), 2<<20)
		}},
		{"short database", "only the first pages are left", damaged, func(t *testing.T, data string) {
			truncate(t, databaseFile(data), 100)
		}},
		{"empty database", "the first start was killed; the log has all writes", "", func(t *testing.T, data string) {
			truncate(t, databaseFile(data), 0)
		}},
		{"overwritten database", "both meta pages are lost", damaged, func(t *testing.T, data string) {
			overwrite(t, databaseFile(data), 0, 16<<10)
		}},
		{"truncated log", "acknowledged writes are lost", damaged, func(t *testing.T, data string) {
			truncate(t, lastLog(t, data), 1<<20)
		}},
		{"overwritten log", "a record in the middle is lost", damaged, func(t *testing.T, data string) {
			overwrite(t, lastLog(t, data), 1<<20, 4<<10)
		}},
		{"missing log", "etcd would begin a new log, and skip its writes", damaged, func(t *testing.T, data string) {
			remove(t, filepath.Join(data, "etcd", "member", "wal"))
		}},
		{"missing database", "the log alone has all writes of a young server", "", func(t *testing.T, data string) {
			remove(t, databaseFile(data))
		}},
		{"another server", "the database was copied", "server-etcd-of-another-server", func(t *testing.T, data string) {
			changeServerID(t, data)
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			data := filepath.Join(t.TempDir(), "data")
			copyServer(t, base, data)
			copyPrivate(t, filepath.Join(base, "etcd"), filepath.Join(data, "etcd"))
			test.damage(t, data)
			if test.id == "" {
				c := startChild(t, data, "", serverOptions{})
				if _, err := c.client(t).CoreV1().ConfigMaps("default").Get(t.Context(), "value-19", metav1.GetOptions{}); err != nil {
					t.Errorf("%v: %s", err, test.reason)
				}
				c.stop(t)
				return
			}
			if mustRefuse(t, data, test.id, func(*controlplane.Config) {}); t.Failed() {
				t.Log(test.reason)
			}
		})
	}
}

func databaseFile(data string) string { return filepath.Join(data, "etcd", "member", "snap", "db") }

// lastLog returns the newest file of the log of etcd.
func lastLog(t *testing.T, data string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(data, "etcd", "member", "wal", "*.wal"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no log: %v", err)
	}
	return slices.Max(paths)
}

func truncate(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

// overwrite replaces a part of a file with other bytes.
func overwrite(t *testing.T, path string, at, size int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte(strings.Repeat("damage! ", int(size/8))), at)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

// changeServerID gives a data directory another id, whose length is the same.
func changeServerID(t *testing.T, data string) {
	t.Helper()
	path := filepath.Join(data, "server.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, after, found := strings.Cut(string(text), `"id":"`)
	if !found {
		t.Fatalf("%s has no id: %s", path, text)
	}
	digit := "0"
	if after[:1] == digit {
		digit = "1"
	}
	if err := os.WriteFile(path, []byte(before+`"id":"`+digit+after[1:]), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestRobustPort_InUseIsRefused listens on the port of the running server.
func TestRobustPort_InUseIsRefused(t *testing.T) {
	l, err := controlplane.Listen(t.Context(), server.Address())
	if err == nil {
		t.Fatalf("it listens on %s", l.Addr())
	}
	if diff := cmp.Diff([]string{portInUse}, idsOf(err)); diff != "" {
		t.Error(diff)
	}
}

// TestRobustStart_ReleasesEverythingAfterFailure starts a server whose configuration is refused
// after its database has started. The next start on the same directory and port succeeds.
func TestRobustStart_ReleasesEverythingAfterFailure(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	tests := []struct{ name, reason, content string }{
		{"unknown field", "a typing error", noIssuers + "jtw: []\n"},
		{"anonymous", "the server decides this", noIssuers + "anonymous: {enabled: true}\n"},
		{"kind", "the file has another purpose", "apiVersion: v1\nkind: Config\n"},
		{"issuer without URL", "the API server refuses it", noIssuers + "jwt: [{issuer: {audiences: [a]}}]\n"},
	}
	var listen string
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "authentication.yaml")
			if err := os.WriteFile(file, []byte(test.content), 0o600); err != nil {
				t.Fatal(err)
			}
			mustRefuse(t, data, "server-authentication-config", func(c *controlplane.Config) {
				c.AuthenticationConfig = file
				if err := c.Listener.Close(); err != nil {
					t.Error(err)
				}
				c.Listener = listenFree(t)
				listen = c.Listener.Addr().String()
			})
			l, err := controlplane.Listen(t.Context(), listen)
			if err != nil {
				t.Fatalf("the port is not released: %v", err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
	c := startChild(t, data, listen, serverOptions{})
	c.stop(t)
}
