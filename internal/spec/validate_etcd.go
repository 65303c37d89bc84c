package spec

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/spec/hostaddress"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

// The types of etcd.
const (
	EtcdStacked  = "stacked"  // a member on every control plane, run by its kubelet
	EtcdManaged  = "managed"  // a service on the hosts with the role etcd
	EtcdExternal = "external" // not managed by Slipway
)

const (
	pathEtcdArgs = "spec.etcd.extraArgs"
	pathExternal = "spec.etcd.external"
	pathCAFile   = pathExternal + ".caFile"
	pathCertFile = pathExternal + ".certFile"
	pathKeyFile  = pathExternal + ".keyFile"
)

// EtcdHosts returns the hosts that run etcd as a service managed by Slipway.
func EtcdHosts(c *v1alpha1.Cluster) []v1alpha1.Host {
	if c.Spec.Etcd.Type != EtcdManaged {
		return nil
	}
	return HostsWithRole(c, v1alpha1.RoleEtcd)
}

func (v *validator) checkEtcd() {
	e := v.c.Spec.Etcd
	v.checkOneOf("spec.etcd.type", e.Type, []string{EtcdStacked, EtcdManaged, EtcdExternal}, nil)
	v.checkExtraArgs(pathEtcdArgs, e.ExtraArgs)
	if e.Type == EtcdManaged {
		v.checkMemberCount(len(EtcdHosts(v.c)))
	}
	backupValidator{v}.checkBackup(e)
	if e.Type != EtcdExternal {
		if e.External != nil {
			v.refuse(idConflictingFields, pathExternal, "this field is only for an external etcd, but spec.etcd.type is "+e.Type,
				"write type: external, or leave this field out")
		}
		return
	}
	if len(e.ExtraArgs) > 0 {
		v.refuse(idConflictingFields, pathEtcdArgs,
			"Slipway does not start an external etcd, so these arguments have no effect", "leave them out")
	}
	v.checkExternalEtcd(e.External)
}

// checkMemberCount checks the number of hosts with etcd.
func (v *validator) checkMemberCount(count int) {
	switch {
	case count == 0:
		v.refuse(idNoEtcdHost, "spec.etcd.type", "no host has the role etcd", "give the role to an odd number of hosts: roles: [etcd]")
	case count%2 == 0:
		v.warn(idEvenMembers, "spec.hosts",
			fmt.Sprintf("%d etcd members tolerate the loss of %d, as %d members would: etcd needs a majority", count, count/2-1, count-1),
			fmt.Sprintf("give the role etcd to %d or %d hosts", count-1, count+1))
	}
}

// checkEtcdRole checks the role etcd of a host.
func (v *validator) checkEtcdRole(path string) {
	if kind := v.c.Spec.Etcd.Type; kind == EtcdStacked || kind == EtcdExternal {
		v.refuse(idConflictingFields, path, "the role etcd needs type managed, but spec.etcd.type is "+kind,
			"write type: managed under spec.etcd, or remove the role")
	}
}

func (v *validator) checkExternalEtcd(e *v1alpha1.ExternalEtcd) {
	if e == nil {
		v.refuse(idMissingField, pathExternal, "this field is required",
			"write the endpoints of the external etcd, and the files caFile, certFile and keyFile")
		return
	}
	if len(e.Endpoints) == 0 {
		v.refuse(idMissingField, pathExternal+".endpoints", "this field is required",
			"write the members' client URLs, such as https://10.0.0.21:2379")
	}
	before := entries{}
	for i, endpoint := range e.Endpoints {
		at := yamlfile.IndexPath(pathExternal+".endpoints", i)
		if problem, hint := endpointProblem(endpoint); problem != "" {
			v.refuse(idInvalidAddress, at, quoteAddress(endpoint)+" "+problem, hint)
		}
		v.checkRepeated(diag.Error, before, at, URLMeaning(endpoint), endpoint)
	}
	v.requireText(pathCAFile, e.CAFile, "write the path of the CA certificate that signed the member certificates")
	v.requireText(pathCertFile, e.CertFile, "write the path of a client certificate that the members accept")
	v.requireText(pathKeyFile, e.KeyFile, "write the path of the private key for certFile")
}

// endpointProblem returns why a client URL of etcd cannot be used.
func endpointProblem(text string) (problem, hint string) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" || u.Host == "" {
		return "is not a URL", "write it as https://HOST:PORT"
	}
	host, port := u.Hostname(), u.Port()
	_, known := hostaddress.Check(host)
	number, err := strconv.Atoi(port)
	switch {
	case u.Scheme == "http":
		return "would send the cluster's secrets unencrypted", "use https, and configure certificates on the members"
	case u.Scheme != "https":
		return "is not an https URL", "write it as https://HOST:PORT"
	case !known || err != nil || number < 1 || number > 65535:
		return "does not contain a host and a port", "write it as https://HOST:2379"
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return "has more than a host and a port", "write https://" + net.JoinHostPort(host, port)
	}
	return "", ""
}

// checkSameEtcd rejects another etcd cluster than the one with the data of this cluster: each
// change of endpoints must keep at least one, so that members can move.
func (v changeValidator) checkSameEtcd(old, new *v1alpha1.ExternalEtcd) {
	if old == nil || new == nil || slices.ContainsFunc(new.Endpoints, func(e string) bool { return slices.Contains(old.Endpoints, e) }) {
		return
	}
	v.refuse(idImmutableField, pathExternal+".endpoints",
		"none of these endpoints belongs to the current etcd ("+strings.Join(old.Endpoints, ", ")+"): the cluster would lose its data",
		"keep at least one current endpoint; when members move, change the other endpoints first")
}

// checkKeepsMembers rejects etcd hosts that do not include any host with the data: each change
// must keep at least one.
func (v changeValidator) checkKeepsMembers(old *v1alpha1.Cluster) {
	has := func(hosts []v1alpha1.Host, name string) bool {
		return slices.ContainsFunc(hosts, func(h v1alpha1.Host) bool { return h.Name == name })
	}
	before, after := EtcdHosts(old), EtcdHosts(v.c)
	if len(before) > 0 && !slices.ContainsFunc(before, func(h v1alpha1.Host) bool { return has(after, h.Name) }) {
		v.refuse(idImmutableField, "spec.hosts", "none of the current etcd hosts is listed: the cluster would lose its data",
			"keep at least one of them, and remove it after the new members have joined")
	}
}

// checkExternalFiles checks the credentials for an external etcd.
func (v fileValidator) checkExternalFiles(p Paths) {
	e := v.c.Spec.Etcd.External
	if e == nil {
		return
	}
	now := p.now()
	v.checkCertificates(pathCAFile, v.readContent(pathCAFile, e.CAFile, p, false), p.Resolve(e.CAFile), now)
	cert := v.readContent(pathCertFile, e.CertFile, p, false)
	v.checkCertificates(pathCertFile, cert, p.Resolve(e.CertFile), now)
	key := v.readContent(pathKeyFile, e.KeyFile, p, true)
	if cert == nil || key == nil {
		return
	}
	if _, err := tls.X509KeyPair(cert, key); err != nil {
		v.refuse(idCertificate, pathKeyFile,
			p.Resolve(e.KeyFile)+" does not match the certificate "+p.Resolve(e.CertFile)+": "+strings.TrimPrefix(err.Error(), "tls: "),
			"write the path of the private key for this certificate (without a passphrase)")
	}
}

// readContent reads a file of settings, certificates or a key; it returns nil if there is
// nothing to read.
func (v fileValidator) readContent(path, name string, p Paths, private bool) []byte {
	if name == "" {
		return nil
	}
	name = p.Resolve(name)
	f, err := bounded.Open(name)
	if err != nil {
		v.refuse(idFileMissing, path, "the file cannot be read: "+errorReason(err, name), hintPath)
		return nil
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxContentBytes))
	if err != nil {
		v.refuse(idFileMissing, path, "the file cannot be read: "+errorReason(err, name), "")
		return nil
	}
	if private {
		v.warnReadableSecret(path, name, f)
	}
	return data
}

// maxContentBytes limits such a file.
const maxContentBytes = 1 << 20

// checkCertificates rejects a file without a certificate, or with one that is not valid now.
func (v fileValidator) checkCertificates(path string, data []byte, name string, now time.Time) {
	if data == nil {
		return
	}
	certs, err := parseCertificates(data)
	if err != nil {
		v.refuse(idCertificate, path, name+" is not a certificate: "+err.Error(), "use a PEM file, which begins with -----BEGIN CERTIFICATE-----")
		return
	}
	for _, c := range certs {
		switch {
		case now.After(c.NotAfter):
			v.refuse(idCertificate, path,
				fmt.Sprintf("the certificate of %s in %s expired on %s", quoteSubject(c), name, c.NotAfter.UTC().Format(time.DateOnly)),
				"renew the certificate at its issuer")
		case now.Before(c.NotBefore):
			v.refuse(idCertificate, path,
				fmt.Sprintf("the certificate of %s in %s is not valid before %s", quoteSubject(c), name, c.NotBefore.UTC().Format(time.RFC3339)),
				"check the clock of this machine")
		}
	}
}

func quoteSubject(c *x509.Certificate) string { return strconv.Quote(c.Subject.CommonName) }

func parseCertificates(data []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for {
		var block *pem.Block
		block, data = pem.Decode(data)
		switch {
		case block == nil && len(out) == 0:
			return nil, errors.New("the file has no certificate")
		case block == nil:
			return out, nil
		case block.Type != "CERTIFICATE":
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
}
