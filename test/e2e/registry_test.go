//go:build e2e && long

package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

// The login of a site's registry, and a word that it does not know.
const (
	pullUser, pullWord, wrongWord = "puller", "word-of-the-registry-5d1c", "word-of-nobody-77ab"
)

// serveRegistry serves a registry on this host, in the network of a machine, over TLS and
// with a login, until the test ends. Its CA is in ca.crt in dir.
func serveRegistry(t *testing.T, machine, dir string) (host string) {
	t.Helper()
	address := netip.MustParseAddr(machine).As4()
	address[3] = 1
	gateway := netip.AddrFrom4(address).String()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the site's registry"}, IPAddresses: []net.IP{net.ParseIP(gateway)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	raw, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), 0o644); err != nil {
		t.Fatal(err)
	}
	quiet := slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	store := registry.New(registry.Logger(quiet))
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, _ := r.BasicAuth(); u != pullUser || p != pullWord {
			w.Header().Set("WWW-Authenticate", `Basic realm="the site"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"who are you?"}]}`, http.StatusUnauthorized)
			return
		}
		store.ServeHTTP(w, r)
	}))
	srv.Listener.Close()
	if srv.Listener, err = net.Listen("tcp", net.JoinHostPort(gateway, "0")); err != nil {
		t.Fatal(err)
	}
	srv.Config.ErrorLog = quiet
	srv.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: key}}}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// TestLongRegistryLogin uses a site's registry that requires a login. The registry has the
// bundle of a cluster, and an image that is in no bundle. One namespace of the registry
// also mirrors another registry. Nodes pull the image with the password of the cluster
// file. A wrong password is reported, and a change of the password restarts nothing.
func TestLongRegistryLogin(t *testing.T) {
	u := newUser(t)
	const name = "e2e-registry"
	file := u.createMachines(t, name, 2)
	machines := []string{name + "-1", name + "-2"}
	word := func(text string) {
		if err := os.WriteFile(filepath.Join(u.home, "word"), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var host string
	editSpec(t, file, func(spec map[string]any) {
		host = serveRegistry(t, spec["hosts"].([]any)[0].(map[string]any)["address"].(string), u.home)
		spec["bundle"] = host + "/slipway/bundle:v1"
		spec["registry"] = map[string]any{
			"mirrors": map[string]any{"images.example.com": []string{"https://" + host + "/v2/slipway"}},
			"auths": []any{map[string]any{
				"registry": host, "username": pullUser, "passwordFrom": map[string]any{"file": "word"}, "caFile": "ca.crt",
			}},
		}
	})
	login := fmt.Sprintf(`{"auths":{%q:{"username":%q,"password":%q}}}`, host, pullUser, pullWord)
	if err := os.WriteFile(filepath.Join(u.home, "login.json"), []byte(login), 0o600); err != nil {
		t.Fatal(err)
	}
	u.mustRun(t, "bundle", "push", testedVersion(), host+"/slipway/bundle:v1", "--credentials", "login.json", "--ca", "ca.crt")

	word(wrongWord)
	before := u.takeSnapshot(t, machines[0])
	if r := u.mustExit(t, 2, "create", "cluster", "-f", file, "--yes"); !strings.Contains(r.stderr, "[bundle-pull-failed]") ||
		strings.Contains(r.stderr, wrongWord) {
		t.Errorf("a wrong password for the bundle: %s", textTail(r.stderr))
	}
	before.requireUntouched(t, machines[0])
	word(pullWord)
	r := u.createCluster(t, file)
	t.Logf("figure: created from a bundle in a registry in %.0f s", r.took.Seconds())
	u.waitForEmptyPlan(t, file)

	image := host + "/slipway/bundle@" + u.echoDigest(t)
	u.requirePulled(t, name, "right", image, machines[1])
	u.requirePulled(t, name, "mirrored", "images.example.com/bundle@"+u.echoDigest(t), machines[0])
	pulse := containersOf(u.recordPulse(t, name, machines))

	// From here on the bundle is at hand, so that it is the nodes who log in.
	u.mustRun(t, "bundle", "export", testedVersion(), "--out", "bundle.tar.zst")
	editSpec(t, file, func(spec map[string]any) { spec["bundle"] = "./bundle.tar.zst" })
	u.mistakesPassword(t, name, file, image, machines[1], "authorization failed", word)
	stillBeats(t, "changing a password", pulse, containersOf(withoutPod(u.recordPulse(t, name, machines), "again")))

	editSpec(t, file, func(spec map[string]any) { delete(spec, "registry") })
	u.mustRun(t, "apply", "-f", file, "--yes")
	u.requireEmptyPlan(t, file)
	if got := u.mustExec(t, machines[1], "sh", "-c", "ls /etc/containerd/certs.d 2>/dev/null; true"); strings.Contains(got, host) {
		t.Errorf("what was taken out of the file is still on a node: %s", got)
	}
	u.noWords(t)
}

// mistakesPassword sets a wrong password of a registry in the cluster file, which a node
// reports when it pulls, and then the right one, with which the node pulls.
func (u *user) mistakesPassword(t *testing.T, cluster, file, image, node, says string, word func(string)) {
	t.Helper()
	word(wrongWord)
	u.mustRun(t, "apply", "-f", file, "--yes")
	u.requireEmptyPlan(t, file)
	u.runsPod(t, cluster, "wrong", image, node)
	eventually(t, 2*time.Minute, "the kubelet to say that it is not let in", func() error {
		if got := u.mustKubectl(t, cluster, "describe", "pod", "wrong"); !strings.Contains(got, says) {
			return errors.New(textTail(got))
		}
		return nil
	})
	word(pullWord)
	start := time.Now()
	u.mustRun(t, "apply", "-f", file, "--yes")
	u.mustKubectl(t, cluster, "delete", "pod", "wrong", "--now")
	u.requirePulled(t, cluster, "again", image, node)
	t.Logf("figure: another password on two nodes, and pulled with it, in %.0f s", time.Since(start).Seconds())
}

// echoDigest returns the digest of an image in the bundle. A registry with the bundle has
// the image under the name of the bundle.
func (u *user) echoDigest(t *testing.T) string {
	t.Helper()
	type held struct {
		Images []struct {
			Name, Arch string
			Manifest   struct{ Digest string }
		}
	}
	images := decodeJSON[held](t, u.mustRun(t, "bundle", "inspect", testedVersion(), "-o", "json")).Images
	for _, i := range images {
		if i.Name == "echo" {
			return i.Manifest.Digest
		}
	}
	t.Fatal("the bundle has no image echo")
	return ""
}

// runsPod runs a pod on a node with an image that the node must pull.
func (u *user) runsPod(t *testing.T, cluster, pod, image, node string) {
	t.Helper()
	manifest := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q},"spec":{"nodeName":%q,`+
		`"tolerations":[{"operator":"Exists"}],"containers":[{"name":"a","image":%q,"imagePullPolicy":"Always"}]}}`,
		pod, node, image)
	path := filepath.Join(u.home, pod+".json")
	if err := os.WriteFile(path, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	u.mustKubectl(t, cluster, "apply", "-f", path)
}

// requirePulled is runsPod, and the pod runs.
func (u *user) requirePulled(t *testing.T, cluster, pod, image, node string) {
	t.Helper()
	u.runsPod(t, cluster, pod, image, node)
	if r := u.runSlipway(t, "kubectl", cluster, "--", "wait", "pod/"+pod, "--for=condition=Ready", "--timeout=2m"); r.code != 0 {
		t.Fatalf("pod %s does not run: %s", pod, textTail(u.mustKubectl(t, cluster, "describe", "pod", pod)))
	}
}

// containersOf are the containers and the units of a pulse: files may change.
func containersOf(pulse map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range pulse {
		if !strings.Contains(key, " file ") {
			out[key] = value
		}
	}
	return out
}

// withoutPod leaves a pod out of a pulse.
func withoutPod(pulse map[string]string, pod string) map[string]string {
	for key := range pulse {
		if strings.Contains(key, "/"+pod+"/") {
			delete(pulse, key)
		}
	}
	return pulse
}

// noWords requires that no file of the user contains the registry's passwords, except the
// files that define them.
func (u *user) noWords(t *testing.T) {
	t.Helper()
	words := []string{pullWord, wrongWord}
	for _, w := range words[:2] {
		words = append(words, base64.StdEncoding.EncodeToString([]byte(pullUser+":"+w)))
	}
	err := filepath.WalkDir(u.home, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !d.Type().IsRegular(), slices.Contains([]string{"word", "login.json", "disk.ext4"}, d.Name()):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, w := range words {
			if strings.Contains(string(text), w) {
				t.Errorf("a password is in %s", path)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
