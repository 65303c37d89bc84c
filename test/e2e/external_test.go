//go:build e2e && long

package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestLongExternalEtcd creates a cluster whose etcd was set up without Slipway: on another
// machine, with certificates that Slipway did not create.
func TestLongExternalEtcd(t *testing.T) {
	u := newUser(t)
	const name = "e2e-external"
	machines, etcd := []string{name + "-1", name + "-2"}, name+"-3"
	file := u.createMachines(t, name, 3)
	var address string
	editSpec(t, file, func(spec map[string]any) {
		hosts := spec["hosts"].([]any)
		address = hosts[2].(map[string]any)["address"].(string)
		spec["hosts"] = hosts[:2]
	})
	pki := u.foreignPKI(t, address)
	u.startByHand(t, etcd, address, pki)
	before := map[string]snapshot{}
	for _, m := range machines {
		before[m] = u.takeSnapshot(t, m)
	}
	with := func(endpoints ...any) {
		editSpec(t, file, func(spec map[string]any) {
			spec["etcd"] = map[string]any{"type": "external", "external": map[string]any{
				"endpoints": endpoints,
				"caFile":    filepath.Join(pki, "ca.crt"), "certFile": filepath.Join(pki, "client.crt"), "keyFile": filepath.Join(pki, "client.key"),
			}}
		})
	}
	with("https://" + address + ":9")
	if r := u.mustExit(t, 2, "create", "cluster", "-f", file, "--yes"); !strings.Contains(r.stderr, "etcd-unreachable") {
		t.Errorf("refused for another reason than an etcd that is not there:\n%s", textTail(r.stderr))
	}
	for _, m := range machines {
		requireSame(t, m+" after a refusal", "touched", before[m], u.takeSnapshot(t, m))
	}
	with("https://" + address + ":2379")
	r := u.createCluster(t, file)
	t.Logf("figure: created in %.0f s", r.took.Seconds())
	addresses := u.waitForNodes(t, name, machines...)
	if pods := u.mustKubectl(t, name, "-n", "kube-system", "get", "pods", "-o", "name"); strings.Contains(pods, "etcd") {
		t.Errorf("the cluster has an etcd of its own:\n%s", pods)
	}
	if keys := u.mustExec(t, etcd, byHand("get", "/registry/namespaces/default", "--keys-only")...); !strings.Contains(keys,
		"/registry/namespaces/default") {
		t.Errorf("the etcd does not hold the cluster: %q", keys)
	}
	u.smokeTest(t, name, addresses)
	u.requireEmptyPlan(t, file)
	u.ownSecret(t, filepath.Join(pki, "client.key"))
	t.Run("etcd stops", func(t *testing.T) {
		u.mustExec(t, etcd, "systemctl", "stop", "foreign-etcd")
		eventually(t, time.Minute, "the API without its store fails", func() error {
			if r := u.runSlipway(t, "kubectl", name, "--", "--request-timeout=5s", "create", "configmap", "lost"); r.code == 0 {
				u.mustKubectl(t, name, "delete", "configmap", "lost")
				return errors.New("it answers")
			}
			return nil
		})
		u.mustExec(t, etcd, "systemctl", "start", "foreign-etcd")
		u.writeAndRead(t, name, "back")
		u.waitForNodes(t, name, machines...)
		u.waitForEmptyPlan(t, file) // components that lost their leases restart
	})
	u.mustExit(t, 0, "delete", "cluster", name, "--yes", "--allow-removal")
	for _, m := range machines {
		requireSame(t, m+" before and after", "touched", before[m], u.takeSnapshot(t, m))
	}
	u.mustExec(t, etcd, byHand("endpoint", "health")...)
}

// byHand is a question to the etcd, on its machine.
func byHand(args ...string) []string {
	return append([]string{
		"/opt/foreign/etcdctl", "--endpoints=https://127.0.0.1:2379", "--cacert=/opt/foreign/ca.crt",
		"--cert=/opt/foreign/client.crt", "--key=/opt/foreign/client.key",
	}, args...)
}

// startByHand sets up an etcd with one member as a separate unit.
func (u *user) startByHand(t *testing.T, machine, address, pki string) {
	t.Helper()
	u.mustExec(t, machine, "mkdir", "-p", "/opt/foreign")
	u.copyTo(t, machine, u.blobPath(t, "etcd"), "/opt/foreign/programs.tar.gz")
	for _, f := range []string{"ca.crt", "server.crt", "server.key", "client.crt", "client.key"} {
		u.copyTo(t, machine, filepath.Join(pki, f), "/opt/foreign/"+f)
	}
	u.mustExec(t, machine, "tar", "-xzf", "/opt/foreign/programs.tar.gz", "-C", "/opt/foreign", "--strip-components=3")
	u.mustExec(t, machine, "sh", "-c", fmt.Sprintf(`cat >/etc/systemd/system/foreign-etcd.service <<END
[Service]
ExecStart=/opt/foreign/etcd --name=foreign --data-dir=/opt/foreign/data --listen-client-urls=https://0.0.0.0:2379 `+
		`--advertise-client-urls=https://%s:2379 --client-cert-auth --trusted-ca-file=/opt/foreign/ca.crt `+
		`--cert-file=/opt/foreign/server.crt --key-file=/opt/foreign/server.key
END
systemctl daemon-reload && systemctl start foreign-etcd`, address))
	eventually(t, time.Minute, "the etcd made by hand", func() error {
		if r := u.runSlipway(t, append([]string{"sandbox", "exec", machine, "--"}, byHand("endpoint", "health")...)...); r.code != 0 {
			return errors.New(textTail(r.stderr))
		}
		return nil
	})
}

// ownSecret wants the content of a file with a key nowhere in the state of the
// user's Slipway.
func (u *user) ownSecret(t *testing.T, key string) {
	t.Helper()
	raw, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	u.requireSecretAbsent(t, string(bytes.Split(raw, []byte("\n"))[1]))
}

// requireSecretAbsent wants a secret nowhere in the state of the user's Slipway.
func (u *user) requireSecretAbsent(t *testing.T, secret string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(u.home, "slipway"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "sandboxes" {
			return fs.SkipDir // the hosts themselves
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(secret)) {
			t.Errorf("%s holds a secret", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// foreignPKI returns a directory with the certificates of an etcd at an address: a CA, and
// a server and a client certificate that it has signed.
func (u *user) foreignPKI(t *testing.T, address string) string {
	t.Helper()
	dir := filepath.Join(u.home, "foreign")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var ca *x509.Certificate
	var caKey *ecdsa.PrivateKey
	for i, name := range []string{"ca", "server", "client"} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		c := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 1)), Subject: pkix.Name{CommonName: "foreign " + name},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), BasicConstraintsValid: true,
			IPAddresses: []net.IP{net.ParseIP(address), net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
		if ca == nil {
			c.IsCA, c.KeyUsage, c.ExtKeyUsage = true, x509.KeyUsageCertSign, nil
			ca, caKey = c, key
		}
		raw, err := x509.CreateCertificate(rand.Reader, c, ca, key.Public(), caKey)
		if err != nil {
			t.Fatal(err)
		}
		secret, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		for file, block := range map[string]*pem.Block{
			name + ".crt": {Type: "CERTIFICATE", Bytes: raw},
			name + ".key": {Type: "PRIVATE KEY", Bytes: secret},
		} {
			if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}
