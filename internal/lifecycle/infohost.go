package lifecycle

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/facts"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/spec"
)

// each does something for all of a list at once.
func each[T any](list []T, do func(T)) {
	var g errgroup.Group
	g.SetLimit(dialAtOnce)
	for _, x := range list {
		g.Go(func() error { do(x); return nil })
	}
	_ = g.Wait() // nothing fails: what went wrong is kept with each
}

// merged is a host with all its SSH settings.
func merged(c *v1alpha1.Cluster, h v1alpha1.Host) v1alpha1.Host {
	h.SSH = spec.MergeSSH(c.Spec.SSH, h.SSH)
	return h
}

// host asks one host all there is to ask it.
func (l *looker) host(ctx context.Context, h *hostLook) {
	f := facts.Ask(ctx, h.spec, h.conn, op.Facts{Dirs: []string{facts.DirKubelet}})
	if h.facts, h.err = f.Facts, f.Err; h.err != nil {
		return
	}
	h.certs = certificates(ctx, h)
	if !facts.RunsKubelet(h.spec.Roles) {
		return
	}
	if w, ok := h.conn.(remote.Worker); ok {
		var out bytes.Buffer
		if _, err := w.Run(ctx, remote.Command{Argv: []string{"systemctl", "is-active", "kubelet"}}, nil, &out, &bytes.Buffer{}); err == nil {
			h.kubelet = strings.TrimSpace(out.String())
		}
	}
	if h.err = ctx.Err(); h.err != nil || len(l.admin) == 0 {
		return
	}
	h.asked = true
	client, err := l.client(h, l.env.Endpoint())
	if err != nil {
		h.endpoint = err
		return
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, apiTime)
	defer cancel()
	h.endpoint = client.Healthy(ctx)
}

// hostResources are what the host says it has.
func hostResources(f *op.HostFacts) Resources {
	r := Resources{CPU: strconv.Itoa(f.CPUs), Memory: fmt.Sprintf("%dKi", f.MemoryBytes>>10)}
	if len(f.Disks) > 0 {
		r.Disk = fmt.Sprintf("%dKi", f.Disks[0].TotalBytes>>10)
	}
	return r
}

// certificatePaths are files that hold certificates, by the role of their
// host. A kubeconfig holds its user's.
func certificatePaths(h v1alpha1.Host) []string {
	const dir = "/etc/kubernetes/"
	var out []string
	add := func(names ...string) {
		for _, name := range names {
			out = append(out, dir+"pki/"+name+".crt")
		}
	}
	if facts.RunsKubelet(h.Roles) {
		out = []string{module.ClientCert, "/var/lib/kubelet/pki/kubelet.crt"}
		add("ca")
	}
	if spec.HasRole(h, v1alpha1.RoleControlPlane) || spec.HasRole(h, v1alpha1.RoleEtcd) {
		add("etcd/ca", "etcd/server", "etcd/peer", "etcd/healthcheck-client")
	}
	if !spec.HasRole(h, v1alpha1.RoleControlPlane) {
		return out
	}
	add("apiserver", "apiserver-etcd-client", "apiserver-kubelet-client", "front-proxy-client", "front-proxy-ca")
	for _, name := range []string{"admin", "super-admin", "controller-manager", "scheduler"} {
		out = append(out, dir+name+".conf")
	}
	return out
}

// certificates are those on a host; what cannot be read is left out.
func certificates(ctx context.Context, h *hostLook) []Certificate {
	var ops op.List
	for _, p := range certificatePaths(h.spec) {
		ops = append(ops, op.ReadFile{Path: p, Secret: true})
	}
	results, err := h.conn.Check(ctx, ops)
	if err != nil {
		return nil
	}
	var out []Certificate
	for _, r := range results {
		if cert := certificateIn(r.Output); cert != nil {
			out = append(out, Certificate{
				Host: h.spec.Name, Path: r.Target, Subject: cmp.Or(cert.Subject.CommonName, cert.Subject.String()), CA: cert.IsCA, Expires: cert.NotAfter.UTC(),
			})
		}
	}
	return out
}

// certificateIn is the first certificate in PEM, or in a kubeconfig.
func certificateIn(text []byte) *x509.Certificate {
	if !bytes.Contains(text, []byte("-----BEGIN")) {
		text = userCertificate(text)
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			return cert
		}
	}
	return nil
}

// userCertificate is that of a kubeconfig's user.
func userCertificate(conf []byte) []byte {
	var doc struct {
		Users []struct {
			User struct {
				Certificate string `json:"client-certificate-data"`
			} `json:"user"`
		} `json:"users"`
	}
	if yaml.Unmarshal(conf, &doc) != nil || len(doc.Users) == 0 {
		return nil
	}
	text, err := base64.StdEncoding.DecodeString(doc.Users[0].User.Certificate)
	if err != nil {
		return nil
	}
	return text
}

// etcdArgs is how etcdctl speaks to members at some URLs, by commas.
func etcdArgs(endpoints string, args ...string) []string {
	return append([]string{
		module.Etcdctl, "--endpoints=" + endpoints, "--cacert=" + module.EtcdCA,
		"--cert=" + module.EtcdHealthCert, "--key=" + module.EtcdHealthKey,
		"--dial-timeout=3s", "--command-timeout=5s", "--write-out=json",
	}, args...)
}

// askEtcd asks the members through the first of their hosts whose etcdctl
// answers. An external etcd is not ours to ask.
func (l *looker) askEtcd(ctx context.Context, in *EtcdInfo) {
	if in.Type == "external" {
		in.Message = "external: it is looked after elsewhere"
		return
	}
	in.Message = "no host with a member can be asked"
	for h := range l.members {
		worker, ok := h.conn.(remote.Worker)
		if !ok {
			continue
		}
		limit := l.svc.looks.over
		ctx, cancel := context.WithTimeoutCause(ctx, limit, silent(h.spec.Name, limit))
		members, err := etcdMembers(ctx, worker)
		if err = because(ctx, err); err != nil {
			in.Message = h.spec.Name + ": " + why(err).Message
		}
		cancel()
		if len(members) > 0 {
			in.Members, in.Through, in.Message = members, h.spec.Name, ""
			return
		}
	}
}

func etcdctl(ctx context.Context, w remote.Worker, into any, endpoints string, args ...string) error {
	var out, errw bytes.Buffer
	code, err := w.Run(ctx, remote.Command{Argv: etcdArgs(endpoints, args...)}, nil, &out, &errw)
	if err != nil {
		return err
	}
	if jerr := json.Unmarshal(out.Bytes(), into); jerr != nil || code != 0 && out.Len() == 0 {
		said := strings.TrimSpace(errw.String())
		if i := strings.LastIndexByte(said, '\n'); i >= 0 {
			said = said[i+1:]
		}
		return errors.New("etcdctl: " + cmp.Or(said, fmt.Sprintf("it ended with %d", code)))
	}
	return nil
}

// etcdMembers are the members, and what each says of itself.
func etcdMembers(ctx context.Context, w remote.Worker) ([]EtcdMember, error) {
	var list struct {
		Members []struct {
			ID        uint64   `json:"ID"`
			Name      string   `json:"name"`
			Clients   []string `json:"clientURLs"`
			IsLearner bool     `json:"isLearner"`
		} `json:"members"`
	}
	// Serializable: it answers without a quorum, too.
	if err := etcdctl(ctx, w, &list, module.OwnEtcd(), "member", "list", "--consistency=s"); err != nil {
		if err := etcdctl(ctx, w, &list, module.OwnEtcd(), "member", "list"); err != nil {
			return nil, err
		}
	}
	var out []EtcdMember
	var urls []string
	for _, m := range list.Members {
		e := EtcdMember{Name: m.Name, ID: strconv.FormatUint(m.ID, 16), Learner: m.IsLearner}
		if len(m.Clients) > 0 {
			e.Endpoint = m.Clients[0]
			urls = append(urls, m.Clients[0])
		}
		out = append(out, e)
	}
	var states []struct {
		Endpoint string `json:"Endpoint"`
		Status   struct {
			Header struct {
				MemberID uint64 `json:"member_id"`
			} `json:"header"`
			Version string   `json:"version"`
			DBSize  int64    `json:"dbSize"`
			Leader  uint64   `json:"leader"`
			Errors  []string `json:"errors"`
		} `json:"Status"`
	}
	// Members that are down are left out of the answer.
	err := etcdctl(ctx, w, &states, strings.Join(urls, ","), "endpoint", "status")
	for _, st := range states {
		for i := range out {
			if out[i].ID == strconv.FormatUint(st.Status.Header.MemberID, 16) {
				m := &out[i]
				m.Version, m.DBBytes = st.Status.Version, st.Status.DBSize
				m.Leader = st.Status.Leader != 0 && st.Status.Leader == st.Status.Header.MemberID
				m.Errors = st.Status.Errors
				m.Healthy = st.Status.Leader != 0 && len(st.Status.Errors) == 0
			}
		}
	}
	return out, err
}
