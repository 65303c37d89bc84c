//go:build e2e && long

package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// TestLongRegistry sets up a machine as a registry before there is a cluster. Nodes of the
// cluster log in to it and trust it without further configuration, and run images that no
// other registry has. A certificate is renewed while the registry serves, a changed
// password reaches all nodes, and a delete leaves no files of it.
func TestLongRegistry(t *testing.T) {
	u := newUser(t)
	const cluster = "e2e-own"
	file := u.createMachines(t, cluster, 3)
	nodes, machine := []string{cluster + "-1", cluster + "-2"}, cluster+"-3"
	if r := u.runWithin(t, 40*time.Minute, nil, "bundle", "build", "--kubernetes", testedVersion(), "--source", "modules"); r.code != 0 {
		t.Fatalf("building the bundle ends with %d:\n%s", r.code, textTail(r.stderr))
	}
	var address string
	editSpec(t, file, func(spec map[string]any) {
		h := spec["hosts"].([]any)[2].(map[string]any)
		h["roles"], address = []any{"registry"}, h["address"].(string)
		// So that one which was made a minute ago is renewed when that is asked for.
		childMap(spec, "kubernetes")["certificates"] = map[string]any{"validity": "10m"}
	})
	before := map[string]snapshot{}
	for _, m := range append(nodes, machine) {
		before[m] = u.takeSnapshot(t, m)
	}

	r := u.mustExit(t, 0, "init", "registry", "-f", file, "--yes")
	t.Logf("figure: a registry with the bundle's images in %.0f s", r.took.Seconds())
	for _, m := range nodes {
		requireSame(t, m+" while another is made a registry", "touched", before[m], u.takeSnapshot(t, m))
	}
	reg := u.ownRegistry(t, cluster, address+":5000")
	if !strings.Contains(r.stdout+r.stderr, reg.host) || strings.Contains(r.stdout+r.stderr, reg.word) {
		t.Errorf("it says %s", textTail(r.stdout+r.stderr))
	}
	if code := reg.statusWith(t, ""); code != http.StatusUnauthorized {
		t.Errorf("without a login it answers %d", code)
	}
	if code := reg.statusWith(t, wrongWord); code != http.StatusUnauthorized {
		t.Errorf("with a wrong password it answers %d", code)
	}
	u.requireConfined(t, machine, "slipway-registry.service", "slipway-registry")
	again := u.mustExit(t, 0, "init", "registry", "-f", file, "--yes")
	t.Logf("figure: again, with nothing to do, in %.0f s", again.took.Seconds())

	r = u.createCluster(t, file)
	t.Logf("figure: created beside it in %.0f s", r.took.Seconds())
	u.waitForEmptyPlan(t, file)
	// Images that are in this registry alone: one by its own name, one by another's.
	reg.copyImage(t, u.echoTag(t), reg.host+"/team/app:v1")
	reg.copyImage(t, u.echoTag(t), reg.host+"/docker.io/nobody/app:v1")
	u.requirePulled(t, cluster, "own", reg.host+"/team/app:v1", nodes[1])
	u.requirePulled(t, cluster, "mirrored", "docker.io/nobody/app:v1", nodes[1])

	checked := u.mustRun(t, "certs", "check", cluster)
	if !strings.Contains(checked, "registry") {
		t.Errorf("certs check does not know its certificate: %s", textTail(checked))
	}
	shown := reg.certificateSerial(t)
	u.mustRun(t, "certs", "renew", cluster, "registry", "--yes")
	if reg.certificateSerial(t) == shown {
		t.Error("renewed, it shows the certificate that it had")
	}
	u.requireConfined(t, machine, "slipway-registry.service", "slipway-registry")
	u.requireEmptyPlan(t, file)

	if err := os.WriteFile(filepath.Join(u.home, "word"), []byte(pullWord+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	editSpec(t, file, func(spec map[string]any) {
		spec["registry"] = map[string]any{"private": map[string]any{"passwordFrom": map[string]any{"file": "word"}}}
	})
	u.mustRun(t, "apply", "-f", file, "--yes")
	if code := reg.statusWith(t, reg.word); code != http.StatusUnauthorized {
		t.Errorf("with the password before it answers %d", code)
	}
	reg.word = pullWord
	u.requirePulled(t, cluster, "again", reg.host+"/team/app:v1", nodes[0])
	u.requireEmptyPlan(t, file)

	u.mustExit(t, 0, "delete", "cluster", cluster, "--yes", "--allow-removal")
	for m, was := range before {
		requireSame(t, m+" before and after", "touched", was, u.takeSnapshot(t, m))
	}
	u.noWords(t)
}

// An ownRegistry is the registry on a machine, as seen from outside the cluster.
type ownRegistry struct {
	host, word string
	transport  *http.Transport
}

// ownRegistry reads what Slipway keeps of it.
func (u *user) ownRegistry(t *testing.T, cluster, host string) *ownRegistry {
	t.Helper()
	kept := func(file string) []byte {
		text, err := os.ReadFile(filepath.Join(u.home, "slipway/clusters", cluster, file))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(kept("registry-ca.crt")) {
		t.Fatal("its authority has no certificate")
	}
	return &ownRegistry{host, string(kept("registry.password")), &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12},
	}}
}

// statusWith returns the HTTP status for a password; "" means no password.
func (r *ownRegistry) statusWith(t *testing.T, word string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+r.host+"/v2/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if word != "" {
		req.SetBasicAuth("slipway", word)
	}
	res, err := r.transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	return res.StatusCode
}

// certificateSerial is the number of its certificate.
func (r *ownRegistry) certificateSerial(t *testing.T) string {
	t.Helper()
	conn, err := tls.Dial("tcp", r.host, r.transport.TLSClientConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return fmt.Sprint(conn.ConnectionState().PeerCertificates[0].SerialNumber)
}

// copyImage copies one of the images of the registry to another name.
func (r *ownRegistry) copyImage(t *testing.T, from, to string) {
	t.Helper()
	login := []remote.Option{
		remote.WithContext(t.Context()), remote.WithTransport(r.transport),
		remote.WithAuth(&authn.Basic{Username: "slipway", Password: r.word}),
	}
	source, err := name.ParseReference(r.host + "/" + from)
	if err != nil {
		t.Fatal(err)
	}
	target, err := name.ParseReference(to)
	if err != nil {
		t.Fatal(err)
	}
	image, err := remote.Image(source, login...)
	if err != nil {
		t.Fatalf("pulling %s from where init registry has pushed it: %v", from, err)
	}
	if err := remote.Write(target, image, login...); err != nil {
		t.Fatal(err)
	}
}

// echoTag is the name of an image of the bundle.
func (u *user) echoTag(t *testing.T) string {
	t.Helper()
	var held struct {
		Images []struct{ Name, Ref string }
	}
	if err := json.Unmarshal([]byte(u.mustRun(t, "bundle", "inspect", testedVersion(), "-o", "json")), &held); err != nil {
		t.Fatal(err)
	}
	for _, i := range held.Images {
		if i.Name == "echo" {
			return i.Ref
		}
	}
	t.Fatal("the bundle has no image echo")
	return ""
}
