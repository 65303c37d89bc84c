package certs

import (
	"context"
	"path"
	"slices"
	"time"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kubeconfig"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
)

const (
	// Cluster is the name of the CA for API servers, kubelets and API clients.
	Cluster = "cluster"
	// AuthorityCert holds the CAs that a node trusts: one, or two during a rotation. The
	// first one signs.
	AuthorityCert = pkiDir + "ca.crt"
	authorityKey  = pkiDir + "ca.key"
	markCluster   = "slipway-rotates-cluster"
	// StepCACreated is the step that creates the new CA.
	StepCACreated = "rotate.cluster.make"
	// StepTrusted is the step after which control planes trust both CAs.
	StepTrusted = "rotate.cluster.trust"
	// StepSigned is the step after which the certificates of control planes are signed by
	// the new CA.
	StepSigned = "rotate.cluster.sign"
	// StepDropped is the step after which control planes trust only the new CA.
	StepDropped = "rotate.cluster.drop"
	// StepKeptBoth saves the kubeconfig of the administrator on the manager when both CAs
	// are trusted.
	StepKeptBoth = "record.kubeconfig-both"
	// StepKept saves it when the new CA signs.
	StepKept = "record.kubeconfig"
	// StepKeptLast saves it when only the new CA is trusted: it may have been saved in
	// between, with both CAs.
	StepKeptLast = "record.kubeconfig-last"
)

var (
	// KeyAdminBoth is the administrator's kubeconfig that trusts both CAs.
	KeyAdminBoth = engine.NewKey("certs.admin-both", kubeconfig.Untrusted{})
	// KeyAdminLast is the one that trusts only the new CA.
	KeyAdminLast = engine.NewKey("certs.admin-last", kubeconfig.Untrusted{})
)

// keyNextCA is the new CA with its key.
var keyNextCA = engine.NewKey("certs.next-authority", nextPair{})

// A ClusterRotation rotates the cluster CA.
type ClusterRotation struct {
	AuthorityRotation
	// Readmit lists nodes without the key of the CA whose kubelets still need credentials
	// of the new CA.
	Readmit []string
	// Kubelets holds the names of control planes whose API server verifies kubelets with
	// the cluster CA. Versions before 1.36 read it only at their start, later ones at any
	// time.
	Kubelets map[string]bool
	// Now is the time with which expired certificates are detected.
	Now func() time.Time
}

// KubeletCAFlag is the argument with which an API server verifies kubelets with the
// cluster CA.
const KubeletCAFlag = "--kubelet-certificate-authority=" + AuthorityCert

// ClusterAuthority returns the CA for API servers, kubelets and API clients. Workers trust
// it too, in the same file.
func ClusterAuthority(env module.Env) Authority {
	return Authority{
		Name: Cluster, CommonName: "kubernetes", Names: []string{"kubernetes"}, Cert: AuthorityCert, Key: authorityKey, Trust: AuthorityCert,
		On: engine.HasRole(v1alpha1.RoleControlPlane), Keeper: env.IsFirst,
	}
}

// RotationOps holds the operations of other modules on programs that use the cluster CA.
type RotationOps struct {
	// ChangeSigner makes the controller manager of a control plane sign with
	// module.SigningCert (apart), or with the trusted CA.
	ChangeSigner func(h *engine.Host, apart bool) (op.List, error)
	// RerunCAPhases repeats on a control plane what was done once with the CA.
	RerunCAPhases func(h *engine.Host) op.List
	// ReloadKubelet makes the kubelet of a node read files again.
	ReloadKubelet func(h *engine.Host, files ...string) op.Unit
	// ReloadBalancer makes the load balancers of a node read their CA again.
	ReloadBalancer func(h *engine.Host) op.List
}

// ClusterRotationModules is the rotation of the cluster CA, as modules. All hosts
// trust the new CA before anything is signed by it, and nothing is signed by the old CA
// when it is dropped. Pods are restarted in between, because many read their CA only at
// their start. Modules of others run between these: CreateCA comes before the
// connection to the API, SignWithNewCA before kubelets request new credentials, and
// DropOldCA before the connection to the API with the new CA.
type ClusterRotationModules struct{ CreateCA, SignWithNewCA, DropOldCA, EndRotation engine.Module }

// RotateCluster returns the rotation of the cluster CA.
func RotateCluster(env module.Env, r ClusterRotation, around RotationOps) ClusterRotationModules {
	c := clusterRotator{env, r, around}
	return ClusterRotationModules{
		CreateCA:      engine.Module{Name: "rotate", Tasks: []engine.Task{r.createCATask(env, keyNextCA, r.HasBegun)}},
		SignWithNewCA: engine.Module{Name: "rotate", Tasks: c.signTasks()},
		DropOldCA:     engine.Module{Name: "rotate", Tasks: c.dropTasks()},
		EndRotation:   engine.Module{Name: "rotate", Tasks: c.endTasks()},
	}
}

var (
	// rolling runs on one control plane after the other.
	rolling  = engine.Rollout{MaxParallel: "1", MaxUnavailable: "1"}
	withNext = []engine.KeyRef{keyNextCA.Ref()}
	withAPI  = []engine.KeyRef{keyNextCA.Ref(), module.KeyKube.Ref()}
)

// signTasks returns the tasks until all certificates of control planes are signed by the
// new CA.
func (c clusterRotator) signTasks() []engine.Task {
	return []engine.Task{
		{
			ID: StepTrusted, Title: "trust both CAs", On: c.r.On, When: c.r.IsOldTrustedEverywhere, Rollout: rolling,
			Timeout: 30 * time.Minute, Consumes: withNext,
			Provides: []engine.KeyRef{KeyAdminBoth.Ref()}, Ops: c.trustBothCAs, After: c.provideKubeconfig(KeyAdminBoth, c.bothCAs),
		},
		{
			ID: "rotate.cluster.nodes", Title: "trust both CAs on workers", On: module.JoinsAsWorker,
			When: c.r.IsOldTrustedEverywhere, Rollout: rolling, Timeout: 20 * time.Minute, Consumes: withNext,
			Needs: []string{StepTrusted}, Ops: c.trustOnWorker(c.bothCAs),
		},
		{
			ID: "rotate.cluster.publish", Title: "publish both CAs to pods", Manager: true, When: c.r.IsOldTrustedEverywhere,
			Timeout: 20 * time.Minute, Consumes: withAPI,
			Needs: []string{"rotate.cluster.nodes"}, Run: c.publishAction(module.KeyKube, c.bothCAs, false),
		},
		{
			ID: "rotate.cluster.pods", Title: "restart pods without new CA", Manager: true, When: c.r.IsOldTrustedEverywhere,
			Timeout: time.Hour, Consumes: withAPI,
			Needs: []string{"rotate.cluster.publish"}, Run: &engine.Action{Check: c.olderPods, Apply: c.renewPods},
		},
		{
			ID: StepSigned, Title: "sign with new CA", On: c.r.On, When: c.r.IsOldTrustedEverywhere, Rollout: rolling,
			Timeout: 30 * time.Minute, Consumes: withNext,
			Needs: []string{"rotate.cluster.pods", StepKeptBoth}, Provides: []engine.KeyRef{KeyAdmin.Ref()},
			Ops: c.signWithNewCA, After: c.provideKubeconfig(KeyAdmin, c.nextCA),
		},
	}
}

// dropTasks returns the tasks after which nothing trusts the old CA.
func (c clusterRotator) dropTasks() []engine.Task {
	return []engine.Task{
		{
			ID: "rotate.cluster.needed", Title: "check for use of old CA", Manager: true, When: c.r.IsOldTrustedEverywhere, Consumes: withAPI,
			Needs: []string{StepSigned, "readmit.kubelet", "readmit.serving"},
			Run:   &engine.Action{Check: c.planOldCACheck, Apply: c.checkOldCAUnused},
		},
		{
			ID: StepDropped, Title: "trust new CA only", On: c.r.On, When: c.r.HasBegun, Rollout: rolling,
			Timeout: 30 * time.Minute, Consumes: withNext,
			Needs:    []string{"rotate.cluster.needed", "join.token-end", StepKept},
			Provides: []engine.KeyRef{KeyAdminLast.Ref()}, Ops: c.dropOldCA, After: c.provideKubeconfig(KeyAdminLast, c.nextCA),
		},
		{
			ID: "rotate.cluster.drop-nodes", Title: "trust new CA only on workers", On: module.JoinsAsWorker,
			When: c.r.HasBegun, Rollout: rolling, Timeout: 20 * time.Minute, Consumes: withNext,
			Needs: []string{StepDropped}, Ops: c.trustOnWorker(c.nextCA),
		},
	}
}

// endTasks returns the tasks that complete the rotation.
func (c clusterRotator) endTasks() []engine.Task {
	after := module.KeyKubeAfter.Ref()
	return []engine.Task{
		{
			ID: "rotate.cluster.settle", Title: "publish only new CA to pods", Manager: true, When: c.r.HasBegun,
			Timeout: 20 * time.Minute, Consumes: append(slices.Clone(withNext), after),
			Needs: []string{"rotate.cluster.drop-nodes"}, Run: c.publishAction(module.KeyKubeAfter, c.nextCA, true),
		},
		{
			ID: "rotate.cluster.mark", Title: "delete rotation marker", Manager: true,
			Needs: []string{"rotate.cluster.settle"}, Consumes: []engine.KeyRef{after},
			When: c.r.HasBegun, Run: deleteMarkAction(markCluster, module.KeyKubeAfter, c.r.Gone),
		},
		c.r.deleteFilesTask("rotate.cluster.mark"),
	}
}

// A clusterRotator holds the inputs of its tasks.
type clusterRotator struct {
	env    module.Env
	r      ClusterRotation
	around RotationOps
}

// nextCA returns the new CA; nil if it does not exist yet.
func (c clusterRotator) nextCA(s *engine.Scope) ([]byte, error) {
	return engine.GetValue(s, keyNextCA).cert, nil
}

// bothCAs returns the new and the old CA; nil if the new one does not exist yet.
func (c clusterRotator) bothCAs(s *engine.Scope) ([]byte, error) {
	return c.r.newCAFirst(engine.GetValue(s, keyNextCA).cert)
}

// trustBothCAs makes a control plane trust both CAs, and sign with the key that it has.
func (c clusterRotator) trustBothCAs(s *engine.Scope) (op.List, error) {
	h, next := s.Host(), engine.GetValue(s, keyNextCA).cert
	text, err := c.r.bothCAs(h.Name, next)
	if err != nil {
		return nil, err
	}
	comes, err := c.r.parseNextCA(next)
	if err != nil {
		return nil, err
	}
	var signer []byte
	if trusted := c.r.orderCAs(h.Name, comes); len(trusted) > 0 {
		signer = trusted[0].Text
	}
	list, err := c.trustOnControlPlane(h, text, signer, true)
	return append(list, readAdmin), err
}

// trustOnControlPlane makes a control plane trust CAs. Its controller manager signs
// apart from them with signer, or with the first of them.
func (c clusterRotator) trustOnControlPlane(h *engine.Host, text, signer []byte, apart bool) (op.List, error) {
	signing, err := c.around.ChangeSigner(h, apart)
	if err != nil {
		return nil, err
	}
	var list op.List
	if apart {
		list = append(list, op.File{Path: module.SigningCert, Content: signer})
		list = append(list, signing...)
		list = append(list, c.trustOnNode(h, text)...)
	} else {
		list = append(list, c.trustOnNode(h, text)...)
		list = append(list, signing...)
	}
	list = append(list, c.restartComponents(h)...)
	if !apart { // nothing reads it now
		list = append(list, op.Absent{Path: module.SigningCert})
	}
	return append(list, c.waitServing()...), nil
}

// waitServing waits until the API server of a control plane uses the CAs in its files, and
// the components that use it are healthy.
func (c clusterRotator) waitServing() op.List {
	return append(op.List{waitCAsLoaded(c.env), waitAPIServes(c.env)}, c.env.ComponentsHealthy()...)
}

// readAdmin reads the kubeconfig of the administrator. It is the last operation of a step
// that provides it.
var readAdmin = op.ReadFile{Path: adminConf, Secret: true}

// trustOnNode makes a node trust CAs, in its own files.
func (c clusterRotator) trustOnNode(h *engine.Host, text []byte) op.List {
	list := op.List{op.File{Path: AuthorityCert, Content: text}}
	for _, k := range ExpectedCerts(c.env, h.Host) {
		if k.CA == AuthorityCert && path.Ext(k.Path) == ".conf" {
			list = append(list, op.KubeconfigCA{Path: k.Path, CA: text})
		}
	}
	list = append(list, c.around.ReloadKubelet(h, AuthorityCert, dir+"kubelet.conf"))
	return append(list, c.around.ReloadBalancer(h)...)
}

// trustOnWorker makes a worker trust CAs.
func (c clusterRotator) trustOnWorker(what func(*engine.Scope) ([]byte, error)) func(*engine.Scope) (op.List, error) {
	return func(s *engine.Scope) (op.List, error) {
		text, err := what(s)
		return c.trustOnNode(s.Host(), text), err
	}
}

// restartComponents makes the components of a control plane read their CAs and
// certificates again.
func (c clusterRotator) restartComponents(h *engine.Host) op.List {
	list := restartOps(c.env)
	for i, o := range list {
		if r := o.(op.StaticPodRestart); r.Manifest == managerPod {
			r.Files = append(slices.Clone(r.Files), AuthorityCert, authorityKey, module.SigningCert)
			list[i] = r
		}
	}
	if c.r.Kubelets[h.Name] {
		list = append(list, op.StaticPodRestart{Manifest: module.APIServerManifest, Files: []string{AuthorityCert}, TimeoutSeconds: 300})
	}
	return list
}

// signWithNewCA makes a control plane sign with the new CA, and renews its certificates
// with it. The key is written first: with the new CA first in the file and no key for
// it, nothing could be signed or planned.
func (c clusterRotator) signWithNewCA(s *engine.Scope) (op.List, error) {
	pair := engine.GetValue(s, keyNextCA)
	text, err := c.bothCAs(s)
	if err != nil {
		return nil, err
	}
	list := op.List{
		op.File{Path: authorityKey, Content: pair.key, Mode: 0o600, Secret: true},
		op.File{Path: module.SigningCert, Content: pair.cert},
		op.File{Path: AuthorityCert, Content: text},
	}
	for _, k := range ExpectedCerts(c.env, s.Host().Host) {
		if k.CA != AuthorityCert {
			continue
		}
		r := op.RenewCertificate{
			CertificateFile: k.CertificateFile, CAKey: authorityKey,
			ValiditySeconds: int64(c.env.CertValidity() / time.Second), Due: op.DueForeign,
		}
		if k.Rotates || k.Path == dir+"kubelet.conf" {
			r.Unit = kubelet
		}
		list = append(list, r)
	}
	list = append(list, c.restartComponents(s.Host())...)
	return append(append(list, c.waitServing()...), readAdmin), nil
}

// RemoveOldCredentials returns operations that remove the credentials of a kubelet that
// were not signed by the new CA, on a node without the key of the CA. The kubelet then
// requests new ones.
func (r ClusterRotation) RemoveOldCredentials(env module.Env) func(*engine.Host) (op.List, error) {
	return func(h *engine.Host) (op.List, error) {
		var list op.List
		for _, k := range ExpectedCerts(env, h.Host) {
			if k.CA == AuthorityCert && k.Rotates {
				list = append(list,
					op.RenewCertificate{CertificateFile: k.CertificateFile, ValiditySeconds: 1, Due: op.DueForeign, Unit: kubelet, Remade: true})
			}
		}
		return list, nil
	}
}

// dropOldCA makes a control plane trust only the new CA, and sign with it as usual.
func (c clusterRotator) dropOldCA(s *engine.Scope) (op.List, error) {
	list, err := c.trustOnControlPlane(s.Host(), engine.GetValue(s, keyNextCA).cert, nil, false)
	list = append(list, c.around.RerunCAPhases(s.Host())...)
	return append(list, readAdmin), err
}

// provideKubeconfig provides the kubeconfig of the administrator after a step, with the
// CAs that sign certificates from then on.
func (c clusterRotator) provideKubeconfig(key engine.Key[kubeconfig.Untrusted], trust func(*engine.Scope) ([]byte,
	error),
) func(context.Context, *engine.Scope, []op.Result) error {
	return func(_ context.Context, s *engine.Scope, results []op.Result) error {
		text, err := trust(s)
		if last := results[len(results)-1]; err == nil && len(text) > 0 && c.env.IsFirst(s.Host()) && !last.Missing {
			engine.ProvideValue(s, key, kubeconfig.Untrusted{Text: last.Output, CAs: text})
		}
		return err
	}
}
