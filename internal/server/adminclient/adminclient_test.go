package adminclient

import (
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/server/certificates"
	"slipway.dev/slipway/internal/server/datadir"
	"slipway.dev/slipway/internal/testutil/requireroot"
)

// idOf returns the id of a refusal, "" for another error.
func idOf(err error) string {
	var list diag.List
	if !errors.As(err, &list) || len(list) == 0 {
		return ""
	}
	return list[0].ID
}

// openDir returns the data directory of a server that runs at an address, "" if it does not run
// yet.
func openDir(t *testing.T, address string) string {
	t.Helper()
	requireroot.Need(t, "the data directory belongs to root")
	path := filepath.Join(t.TempDir(), "data")
	dir, err := datadir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dir.Close(); err != nil {
			t.Error(err)
		}
	})
	if address != "" {
		if err := dir.WriteHolder(address); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// writeKubeconfig writes the kubeconfig of the administrator for another address of a server.
func writeKubeconfig(t *testing.T, dir string, server *httptest.Server) {
	t.Helper()
	config := clientcmdapi.NewConfig()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	config.Clusters["a"] = &clientcmdapi.Cluster{Server: "https://slipway.example.com", CertificateAuthorityData: ca}
	config.AuthInfos["a"] = &clientcmdapi.AuthInfo{Token: "t"}
	config.Contexts["a"] = &clientcmdapi.Context{Cluster: "a", AuthInfo: "a"}
	config.CurrentContext = "a"
	text, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	file := certificates.AdminKubeconfigIn(filepath.Join(dir, "pki"))
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestOpen_RefusesWithoutServer(t *testing.T) {
	if _, err := Open(filepath.Join(t.TempDir(), "absent")); idOf(err) == "" {
		t.Errorf("a directory that does not exist: got %v, want a refusal", err)
	}
	starting := openDir(t, "")
	if _, err := Open(starting); idOf(err) != idNotRunning {
		t.Errorf("a server that has not started: got %v", err)
	}
	ended := filepath.Join(t.TempDir(), "data")
	dir, err := datadir.Open(ended)
	if err == nil {
		err = errors.Join(dir.WriteHolder("127.0.0.1:1"), dir.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(ended); idOf(err) != idNotRunning {
		t.Errorf("a server that has ended: got %v", err)
	}
}

func TestOpen_RefusesUnreadableKubeconfig(t *testing.T) {
	dir := openDir(t, "127.0.0.1:1")
	if _, err := Open(dir); idOf(err) != idUnreadable {
		t.Errorf("without a kubeconfig: got %v", err)
	}
	file := certificates.AdminKubeconfigIn(filepath.Join(dir, "pki"))
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte("clusters: {"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); idOf(err) != idUnreadable {
		t.Errorf("with a damaged kubeconfig: got %v", err)
	}
}

// TestPost_ReturnsResponseOrRefusal sends requests to the address of the holder, as the user of
// the kubeconfig.
func TestPost_ReturnsResponseOrRefusal(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		switch {
		case err != nil || r.Header.Get("Authorization") != "Bearer t" || string(body) != `{"a":1}`:
			w.WriteHeader(http.StatusBadRequest)
		case r.URL.Path == "/forbidden":
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"kind":"Status","message":"not you"}`)
		case r.URL.Path == "/broken":
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, "<html>")
		default:
			_, _ = io.WriteString(w, "done")
		}
	}))
	t.Cleanup(server.Close)
	dir := openDir(t, server.Listener.Addr().String())
	writeKubeconfig(t, dir, server)
	config, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	post := func(path string) (string, error) {
		body, err := Post(t.Context(), config, path, map[string]int{"a": 1})
		if err != nil {
			return "", err
		}
		defer body.Close()
		text, err := io.ReadAll(body)
		return string(text), err
	}
	if got, err := post("/good"); err != nil || got != "done" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := post("/forbidden"); idOf(err) != idRefused {
		t.Errorf("got %v, want the id %s", err, idRefused)
	}
	// Something may have changed: this is a failure and not a refusal.
	if _, err := post("/broken"); err == nil || idOf(err) != "" {
		t.Errorf("got %v, want an error without an id", err)
	}
	server.Close()
	if _, err := post("/good"); err == nil || idOf(err) != "" {
		t.Errorf("without a server: got %v, want an error", err)
	}
	if _, err := Post(t.Context(), &rest.Config{Host: "https://127.0.0.1:1"}, "/", func() {}); err == nil {
		t.Error("a body that cannot be encoded is accepted")
	}
}
