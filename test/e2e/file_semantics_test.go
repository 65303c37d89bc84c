package e2e

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// describeContent returns the meaning of a file with random bytes: certificates and keys,
// kubeconfigs with them, and the ledger. It returns "" for other files, and for files that
// cannot be parsed.
func describeContent(name string, content []byte) string {
	read := readerOf(name)
	if read == nil {
		return ""
	}
	text, err := read(content)
	if err != nil {
		return ""
	}
	return text
}

// hasMeaning reports whether describeContent supports such a file.
func hasMeaning(name string) bool { return readerOf(name) != nil }

func readerOf(name string) func([]byte) (string, error) {
	kubeconfig, _ := path.Match("/etc/kubernetes/*.conf", name)
	switch {
	case kubeconfig:
		return aboutKubeconfig
	case strings.HasPrefix(name, "/etc/kubernetes/pki/"), strings.HasPrefix(name, "/var/lib/kubelet/pki/"):
		return aboutPEM
	case name == "/var/lib/slipway/ledger/log":
		return aboutLedger
	}
	return nil
}

// dated is the time in the names of the kubelet's certificates.
var dated = regexp.MustCompile(`-\d{4}(-\d{2}){5}\.pem$`)

// withoutTime is a name without the time in it.
func withoutTime(name string) string { return dated.ReplaceAllString(name, "-TIME.pem") }

// aboutPEM describes certificates and keys, a line each.
func aboutPEM(content []byte) (string, error) {
	var lines []string
	for rest := content; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			if len(strings.TrimSpace(string(rest))) > 0 || len(lines) == 0 {
				return "", errors.New("there is something that is not PEM")
			}
			break
		}
		line, err := aboutBlock(block)
		if err != nil {
			return "", err
		}
		lines = append(lines, line)
	}
	if isPair(content, content) {
		lines = append(lines, "the key is the certificate's")
	}
	return strings.Join(lines, "\n"), nil
}

// isPair reports whether a key belongs to a certificate.
func isPair(cert, key []byte) bool {
	_, err := tls.X509KeyPair(cert, key)
	return err == nil
}

func aboutBlock(b *pem.Block) (string, error) {
	var key any
	var err error
	switch b.Type {
	case "CERTIFICATE":
		return aboutCertificate(b.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(b.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(b.Bytes)
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(b.Bytes)
	case "PUBLIC KEY":
		key, err = x509.ParsePKIXPublicKey(b.Bytes)
	default:
		err = fmt.Errorf("unknown PEM type %q", b.Type)
	}
	if err != nil {
		return "", err
	}
	return strings.ToLower(b.Type) + " " + aboutKey(key), nil
}

func aboutKey(key any) string {
	switch k := key.(type) {
	case *rsa.PrivateKey:
		return aboutKey(&k.PublicKey)
	case *ecdsa.PrivateKey:
		return aboutKey(&k.PublicKey)
	case *rsa.PublicKey:
		return fmt.Sprintf("RSA %d", k.N.BitLen())
	case *ecdsa.PublicKey:
		return "ECDSA " + k.Curve.Params().Name
	case ed25519.PrivateKey, ed25519.PublicKey:
		return "Ed25519"
	}
	return fmt.Sprintf("%T", key)
}

// since1970 is the time in the names of certificates that a kubelet signs
// itself.
var since1970 = regexp.MustCompile(`@\d{10}\b`)

// aboutCertificate is all of a certificate but its numbers: subject, issuer,
// names, uses, kind of key, and how long it is good for, in hours.
func aboutCertificate(der []byte) (string, error) {
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return "", err
	}
	var names []string
	for _, n := range c.DNSNames {
		names = append(names, "DNS:"+n)
	}
	for _, ip := range c.IPAddresses {
		names = append(names, "IP:"+ip.String())
	}
	for _, a := range c.EmailAddresses {
		names = append(names, "email:"+a)
	}
	for _, u := range c.URIs {
		names = append(names, "URI:"+u.String())
	}
	slices.Sort(names)
	var extensions []string
	for _, e := range c.Extensions {
		extensions = append(extensions, e.Id.String())
	}
	slices.Sort(extensions)
	return fmt.Sprintf("certificate of %s by %s, for %v, uses %s, CA %t, key %s, signature %s, extensions %v, good for %.0f hours",
		since1970.ReplaceAllString(c.Subject.String(), "@TIME"), since1970.ReplaceAllString(c.Issuer.String(), "@TIME"),
		names, aboutUses(c), c.IsCA, aboutKey(c.PublicKey), c.SignatureAlgorithm, extensions,
		c.NotAfter.Sub(c.NotBefore).Round(time.Hour).Hours()), nil
}

// keyUses are the names of the bits of x509.KeyUsage, from the lowest.
var keyUses = []string{
	"digitalSignature", "contentCommitment", "keyEncipherment", "dataEncipherment", "keyAgreement",
	"keyCertSign", "cRLSign", "encipherOnly", "decipherOnly",
}

func aboutUses(c *x509.Certificate) string {
	var uses []string
	for i, name := range keyUses {
		if c.KeyUsage&(1<<i) != 0 {
			uses = append(uses, name)
		}
	}
	for _, u := range c.ExtKeyUsage {
		switch u {
		case x509.ExtKeyUsageServerAuth:
			uses = append(uses, "serverAuth")
		case x509.ExtKeyUsageClientAuth:
			uses = append(uses, "clientAuth")
		default:
			uses = append(uses, fmt.Sprintf("extended %d", u))
		}
	}
	for _, u := range c.UnknownExtKeyUsage {
		uses = append(uses, u.String())
	}
	return fmt.Sprint(uses)
}

// aboutKubeconfig is a kubeconfig with descriptions in place of certificates
// and keys: server, user and all else stand as they are.
func aboutKubeconfig(content []byte) (string, error) {
	var conf map[string]any
	if err := yaml.Unmarshal(content, &conf); err != nil {
		return "", err
	}
	if conf["kind"] != "Config" {
		return "", errors.New("no kubeconfig")
	}
	for _, cluster := range asList(conf["clusters"]) {
		if err := inPlace(asObject(cluster["cluster"]), "certificate-authority-data"); err != nil {
			return "", err
		}
	}
	for _, user := range asList(conf["users"]) {
		u := asObject(user["user"])
		cert, _ := u["client-certificate-data"].(string)
		key, _ := u["client-key-data"].(string)
		c, _ := base64.StdEncoding.DecodeString(cert) // inPlace tells
		k, _ := base64.StdEncoding.DecodeString(key)
		if err := inPlace(u, "client-certificate-data", "client-key-data"); err != nil {
			return "", err
		}
		if isPair(c, k) {
			u["client-key-data"] = fmt.Sprint(u["client-key-data"], ", the certificate's")
		}
	}
	text, err := yaml.Marshal(conf)
	return string(text), err
}

func asList(v any) (out []map[string]any) {
	items, _ := v.([]any)
	for _, i := range items {
		out = append(out, asObject(i))
	}
	return out
}

func asObject(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// inPlace puts descriptions in the place of PEM in base64, where there is
// any.
func inPlace(m map[string]any, keys ...string) error {
	for _, key := range keys {
		value, ok := m[key].(string)
		if !ok {
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			return err
		}
		if m[key], err = aboutPEM(raw); err != nil {
			return err
		}
	}
	return nil
}

// aboutLedger returns the content of a host's ledger: the saved state, without operations,
// times and numbers of saved files, and the paths that Slipway created.
func aboutLedger(content []byte) (string, error) {
	lines := map[string]bool{}
	for text := range strings.Lines(string(content)) {
		var l struct {
			Entry *struct {
				Kind, Key string
				By        struct{ Cluster string }
				Data      any
			}
			Wrote *struct {
				Path      string
				Exclusive bool
			}
		}
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			return "", err
		}
		switch {
		case l.Entry != nil:
			data, err := json.Marshal(withoutTimes(l.Entry.Data))
			if err != nil {
				return "", err
			}
			lines[fmt.Sprintf("%s %s of %s was %s", l.Entry.Kind, l.Entry.Key, cmp.Or(l.Entry.By.Cluster, "nobody"), data)] = true
		case l.Wrote != nil && l.Wrote.Exclusive:
			lines["all below "+l.Wrote.Path+" is ours"] = true
		}
	}
	if len(lines) == 0 {
		return "", errors.New("an empty ledger")
	}
	return strings.Join(slices.Sorted(maps.Keys(lines)), "\n"), nil
}

func withoutTimes(v any) any {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "mtime")
		delete(v, "object")
		for k, inner := range v {
			v[k] = withoutTimes(inner)
		}
	case []any:
		for i, inner := range v {
			v[i] = withoutTimes(inner)
		}
	}
	return v
}
