package lifecycletest

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/pki/pkitest"
)

// FrontProxyCA is the path of the front proxy CA, without the extension.
const FrontProxyCA = "/etc/kubernetes/pki/front-proxy-ca"

// PublishedCAsPath is the path of the CAs that the API servers publish.
const PublishedCAsPath = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"

// newAuthority returns the key and the certificate of a new CA.
func newAuthority(t testing.TB, name string) (key, cert string) {
	a := pkitest.NewAuthority(t, name, CertTime, CertTime.Add(10*Year))
	return a.Key, a.Cert
}

// hashFiles returns a hash of the contents of files.
func (m *Host) hashFiles(files []string) string {
	var all []string
	for _, f := range files {
		all = append(all, m.Files[f])
	}
	return hashParts(all...)
}

// ReloadTrust simulates an API server that has read its CA bundles. It adds their CAs to the
// published ConfigMap and removes none.
func (m *Host) ReloadTrust(files []string) {
	m.State["trusts"] = m.hashFiles(files)
	m.API.Mu.Lock()
	defer m.API.Mu.Unlock()
	was, _ := m.API.Objects[PublishedCAsPath]["data"].(object)
	text, _ := was["requestheader-client-ca-file"].(string)
	list, err := pki.ParseAuthorities([]byte(text + m.Files[FrontProxyCA+".crt"]))
	if err != nil {
		m.API.T.Errorf("%s has an invalid CA bundle: %v", m.Name, err)
	}
	others := "others"
	if theirs, _ := was["client-ca-file"].(string); strings.Contains(theirs, "BEGIN") {
		known, err := pki.ParseAuthorities([]byte(theirs + m.Files["/etc/kubernetes/pki/ca.crt"]))
		if err != nil {
			m.API.T.Errorf("%s has an invalid CA bundle: %v", m.Name, err)
		}
		others = string(pki.BundleCAs(known...))
	}
	m.API.Objects[PublishedCAsPath] = object{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "extension-apiserver-authentication", "namespace": "kube-system"},
		"data": object{"requestheader-client-ca-file": string(pki.BundleCAs(list...)), "client-ca-file": others},
	}
}

// The files of the cluster CA.
const (
	CACert = "/etc/kubernetes/pki/ca.crt"
	CAKey  = "/etc/kubernetes/pki/ca.key"
)

// RootCAPath is the path of the CA bundle for pods.
const RootCAPath = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt"

// AuthoritiesMade holds the CAs of all tests, by certificate. The process that made one
// may have been killed since.
var AuthoritiesMade sync.Map

// LastingAuthority returns a CA that is valid on any date of a test run.
func LastingAuthority(t testing.TB) (cert, key string) {
	a := pkitest.NewAuthority(t, "kubernetes", time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))
	AuthoritiesMade.Store(a.Cert, a)
	return a.Cert, a.Key
}

// PublishRootCA simulates a controller manager that publishes the CA bundle in namespaces.
func (a *API) PublishRootCA(text string) {
	if a.HasObject(RootCAPath) {
		a.PutObject(RootCAPath,
			object{
				"apiVersion": "v1", "kind": "ConfigMap",
				"metadata": object{"name": "kube-root-ca.crt", "namespace": "default"}, "data": object{"ca.crt": text},
			})
	}
}

// MountOnlyCA makes a pod mount the CA bundle and no token.
func (a *API) MountOnlyCA(name string) {
	at := "/api/v1/namespaces/default/pods/" + name + "-a"
	volume := object{"name": "ca", "configMap": object{"name": "kube-root-ca.crt"}}
	a.PutObject(at, MergePatch(a.Objects[at], object{"spec": object{"volumes": []any{volume}}}))
}

// RejectsSigner reports whether a controller manager would not start, because its signing
// certificate does not match the CA key. Machines of other tests have no real files.
func (m *Host) RejectsSigner() bool {
	file := CACert
	if strings.Contains(m.Files[module.APIServerManifest], module.SigningCert) {
		file = module.SigningCert
	}
	list, err := pki.ParseAuthorities([]byte(m.Files[file]))
	key, failed := pki.ParseKey([]byte(m.Files[CAKey]))
	if err != nil || failed != nil {
		return file == module.SigningCert
	}
	cert, err := pki.ParseCertificate(list[0].Text)
	return err != nil || len(list) != 1 || !pki.IsPair(cert, key)
}

// EtcdCAKey is the file with the key of the etcd CA.
const EtcdCAKey = module.EtcdPKI + "/ca.key"

// shareCA reports whether two bundles have a CA in common. Bundles of tests without real
// certificates have no CA.
func shareCA(one, other string) bool {
	list, _ := pki.ParseAuthorities([]byte(one))
	others, _ := pki.ParseAuthorities([]byte(other))
	return slices.ContainsFunc(list, func(a pki.Authority) bool { return pki.TrustsCA(others, a.ID) })
}

// EtcdCAReaders returns the programs on a host that read etcd's CA at startup.
func (m *Host) EtcdCAReaders() (member, server string) {
	if m.HasFile(EtcdCAKey) {
		if member = EtcdManifest; m.HasFile(etcdUnit) {
			member = "etcd.service"
		}
	}
	if m.HasFile(module.APIServerManifest) {
		server = module.APIServerManifest
	}
	return member, server
}

const etcdUnit = "/etc/systemd/system/etcd.service"
