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
	// Cluster names the authority by which API servers, kubelets and all who ask
	// the API know one another.
	Cluster = "cluster"
	// AuthorityCert are the authorities that a node trusts: one, or two while they
	// are exchanged, of which the first signs.
	AuthorityCert = pkiDir + "ca.crt"
	authorityKey  = pkiDir + "ca.key"
	markCluster   = "slipway-rotates-cluster"
	// StepMade is the step after which the authority that comes is there.
	StepMade = "rotate.cluster.make"
	// StepTrusted is the one after which control planes trust both.
	StepTrusted = "rotate.cluster.trust"
	// StepSigned is the one after which all that they have is signed by what comes.
	StepSigned = "rotate.cluster.sign"
	// StepDropped is the one after which they trust no other.
	StepDropped = "rotate.cluster.drop"
	// StepKeptBoth keeps the administrator's kubeconfig with the manager as it is when
	// both are trusted.
	StepKeptBoth = "record.kubeconfig-both"
	// StepKept keeps it as it is when the next signs.
	StepKept = "record.kubeconfig"
	// StepKeptLast keeps it as it is when no other is trusted: it may have been kept anew
	// meanwhile, as it was while both were.
	StepKeptLast = "record.kubeconfig-last"
)

var (
	// KeyAdminBoth is the administrator's kubeconfig that trusts both CAs.
	KeyAdminBoth = engine.NewKey("certs.admin-both", kubeconfig.Untrusted{})
	// KeyAdminLast is the one that trusts the next CA alone.
	KeyAdminLast = engine.NewKey("certs.admin-last", kubeconfig.Untrusted{})
)

// keyNextCA is the authority that comes, with its key.
var keyNextCA = engine.NewKey("certs.next-authority", nextPair{})

// A ClusterRotation exchanges the cluster's authority.
type ClusterRotation struct {
	AuthorityRotation
	// Readmit are nodes without the authority's key whose kubelets are yet to get
	// credentials of the one that comes.
	Readmit []string
	// Kubelets are the control planes, by their names, whose API server knows kubelets by
	// the cluster's authority: versions before 1.36 read that when they start, and later
	// ones when they like to.
	Kubelets map[string]bool
	// Now is the time by which certificates have ended.
	Now func() time.Time
}

// KnowsKubelets is the argument by which an API server knows kubelets by the cluster's
// authority.
const KnowsKubelets = "--kubelet-certificate-authority=" + AuthorityCert

// ClusterAuthority is the one by which API servers, kubelets and all who ask the API
// know one another. Workers trust it too, in the same file.
func ClusterAuthority(env module.Env) Authority {
	return Authority{
		Name: Cluster, CommonName: "kubernetes", Names: []string{"kubernetes"}, Cert: AuthorityCert, Key: authorityKey, Trust: AuthorityCert,
		On: engine.Role(v1alpha1.RoleControlPlane), Keeper: env.IsFirst,
	}
}

// Around is what other modules know of programs that go by the cluster's authority.
type Around struct {
	// Signing has a control plane's controller manager sign with
	// module.SigningCert, or with what all trust.
	Signing func(h *engine.Host, apart bool) (op.List, error)
	// Follows has a control plane do again what was done once by the authority.
	Follows func(h *engine.Host) op.List
	// Kubelet has a node's kubelet have read files.
	Kubelet func(h *engine.Host, files ...string) op.Unit
	// Balancers has a node's load balancers have read what they trust.
	Balancers func(h *engine.Host) op.List
}

// An Exchange is that of the cluster's authority, in modules. Everybody trusts what
// comes before anybody is signed by it, and nobody is signed by what goes before it is
// dropped. Pods are made anew between: many read whom they trust when they start, and
// not again. Others come between: Make comes before the API is spoken to, Sign before
// kubelets are let in anew, and Drop before the API is spoken to by what is new.
type Exchange struct{ Make, Sign, Drop, End engine.Module }

// RotateCluster is the exchange of the cluster's authority.
func RotateCluster(env module.Env, r ClusterRotation, around Around) Exchange {
	c := cluster{env, r, around}
	return Exchange{
		Make: engine.Module{Name: "rotate", Tasks: []engine.Task{r.make(env, keyNextCA, r.Begun)}},
		Sign: engine.Module{Name: "rotate", Tasks: c.signTasks()},
		Drop: engine.Module{Name: "rotate", Tasks: c.dropTasks()},
		End:  engine.Module{Name: "rotate", Tasks: c.endTasks()},
	}
}

var (
	// rolling goes from one control plane to the next.
	rolling  = engine.Rollout{MaxParallel: "1", MaxUnavailable: "1"}
	withNext = []engine.KeyRef{keyNextCA.Ref()}
	withAPI  = []engine.KeyRef{keyNextCA.Ref(), module.KeyKube.Ref()}
)

// signTasks are those up to where all that control planes have is signed by what comes.
func (c cluster) signTasks() []engine.Task {
	return []engine.Task{
		{
			ID: StepTrusted, Title: "trust both authorities", On: c.r.On, When: c.r.Everywhere, Rollout: rolling, Timeout: 30 * time.Minute, Consumes: withNext,
			Provides: []engine.KeyRef{KeyAdminBoth.Ref()}, Ops: c.trusts, After: c.admin(KeyAdminBoth, c.both),
		},
		{
			ID: "rotate.cluster.nodes", Title: "trust both authorities on workers", On: module.JoinsAsWorker, When: c.r.Everywhere, Rollout: rolling, Timeout: 20 * time.Minute, Consumes: withNext,
			Needs: []string{StepTrusted}, Ops: c.onWorker(c.both),
		},
		{
			ID: "rotate.cluster.publish", Title: "have pods be told of both authorities", Manager: true, When: c.r.Everywhere, Timeout: 20 * time.Minute, Consumes: withAPI,
			Needs: []string{"rotate.cluster.nodes"}, Run: c.tells(module.KeyKube, c.both, false),
		},
		{
			ID: "rotate.cluster.pods", Title: "make pods anew that trust the old authority alone", Manager: true, When: c.r.Everywhere, Timeout: time.Hour, Consumes: withAPI,
			Needs: []string{"rotate.cluster.publish"}, Run: &engine.Action{Check: c.olderPods, Apply: c.renewPods},
		},
		{
			ID: StepSigned, Title: "sign with the next authority", On: c.r.On, When: c.r.Everywhere, Rollout: rolling, Timeout: 30 * time.Minute, Consumes: withNext,
			Needs: []string{"rotate.cluster.pods", StepKeptBoth}, Provides: []engine.KeyRef{KeyAdmin.Ref()}, Ops: c.signs, After: c.admin(KeyAdmin, c.next),
		},
	}
}

// dropTasks are those by which nobody trusts what goes any more.
func (c cluster) dropTasks() []engine.Task {
	return []engine.Task{
		{
			ID: "rotate.cluster.needed", Title: "look who needs the old authority", Manager: true, When: c.r.Everywhere, Consumes: withAPI,
			Needs: []string{StepSigned, "readmit.kubelet", "readmit.serving"}, Run: &engine.Action{Check: c.mayNeed, Apply: c.needed},
		},
		{
			ID: StepDropped, Title: "trust the next authority alone", On: c.r.On, When: c.r.Begun, Rollout: rolling, Timeout: 30 * time.Minute, Consumes: withNext,
			Needs: []string{"rotate.cluster.needed", "join.token-end", StepKept}, Provides: []engine.KeyRef{KeyAdminLast.Ref()}, Ops: c.drops, After: c.admin(KeyAdminLast, c.next),
		},
		{
			ID: "rotate.cluster.drop-nodes", Title: "trust the next authority alone on workers", On: module.JoinsAsWorker, When: c.r.Begun, Rollout: rolling, Timeout: 20 * time.Minute, Consumes: withNext,
			Needs: []string{StepDropped}, Ops: c.onWorker(c.next),
		},
	}
}

// endTasks are those by which nothing is left of the exchange.
func (c cluster) endTasks() []engine.Task {
	after := module.KeyKubeAfter.Ref()
	return []engine.Task{
		{
			ID: "rotate.cluster.settle", Title: "have pods be told of the next authority alone", Manager: true, When: c.r.Begun, Timeout: 20 * time.Minute, Consumes: append(slices.Clone(withNext), after),
			Needs: []string{"rotate.cluster.drop-nodes"}, Run: c.tells(module.KeyKubeAfter, c.next, true),
		},
		{
			ID: "rotate.cluster.mark", Title: "forget when it began", Manager: true, Needs: []string{"rotate.cluster.settle"}, Consumes: []engine.KeyRef{after},
			When: c.r.Begun, Run: unmark(markCluster, module.KeyKubeAfter, c.r.Gone),
		},
		c.r.end("rotate.cluster.mark"),
	}
}

// A cluster is what its tasks are made of.
type cluster struct {
	env    module.Env
	r      ClusterRotation
	around Around
}

// next is the authority that comes, alone; nil if it is not made yet.
func (c cluster) next(s *engine.Scope) ([]byte, error) { return engine.Get(s, keyNextCA).cert, nil }

// both are what comes and what goes; nil if that is not made yet.
func (c cluster) both(s *engine.Scope) ([]byte, error) {
	return c.r.first(engine.Get(s, keyNextCA).cert)
}

// trusts has a control plane trust both, and sign with the key that it has.
func (c cluster) trusts(s *engine.Scope) (op.List, error) {
	h, next := s.Host(), engine.Get(s, keyNextCA).cert
	text, err := c.r.both(h.Name, next)
	if err != nil {
		return nil, err
	}
	comes, err := c.r.parse(next)
	if err != nil {
		return nil, err
	}
	var signer []byte
	if trusted := c.r.inOrder(h.Name, comes); len(trusted) > 0 {
		signer = trusted[0].Text
	}
	list, err := c.control(h, text, signer, true)
	return append(list, readAdmin), err
}

// control has a control plane trust authorities, and its controller manager sign
// apart from them, with what is in signer, or by them.
func (c cluster) control(h *engine.Host, text, signer []byte, apart bool) (op.List, error) {
	signing, err := c.around.Signing(h, apart)
	if err != nil {
		return nil, err
	}
	var list op.List
	if apart {
		list = append(list, op.File{Path: module.SigningCert, Content: signer})
		list = append(list, signing...)
		list = append(list, c.node(h, text)...)
	} else {
		list = append(list, c.node(h, text)...)
		list = append(list, signing...)
	}
	list = append(list, c.restarts(h)...)
	if !apart { // nothing reads it any more
		list = append(list, op.Absent{Path: module.SigningCert})
	}
	return append(list, c.serving()...), nil
}

// serving waits for a control plane that trusts what its files say.
func (c cluster) serving() op.List { return op.List{knows(c.env), serves(c.env)} }

// readAdmin reads the administrator's kubeconfig. It comes last in a step that provides
// it.
var readAdmin = op.ReadFile{Path: adminConf, Secret: true}

// node has a node trust authorities, in what is its own.
func (c cluster) node(h *engine.Host, text []byte) op.List {
	list := op.List{op.File{Path: AuthorityCert, Content: text}}
	for _, k := range Of(c.env, h.Host) {
		if k.CA == AuthorityCert && path.Ext(k.Path) == ".conf" {
			list = append(list, op.KubeconfigCA{Path: k.Path, CA: text})
		}
	}
	list = append(list, c.around.Kubelet(h, AuthorityCert, dir+"kubelet.conf"))
	return append(list, c.around.Balancers(h)...)
}

// onWorker has a worker trust authorities.
func (c cluster) onWorker(what func(*engine.Scope) ([]byte, error)) func(*engine.Scope) (op.List, error) {
	return func(s *engine.Scope) (op.List, error) {
		text, err := what(s)
		return c.node(s.Host(), text), err
	}
}

// restarts have what runs on a control plane have read whom it trusts, and what it is
// signed by.
func (c cluster) restarts(h *engine.Host) op.List {
	list := restarts(c.env)
	for i, o := range list {
		if r := o.(op.PodRestart); r.Manifest == managerPod {
			r.Files = append(slices.Clone(r.Files), AuthorityCert, authorityKey, module.SigningCert)
			list[i] = r
		}
	}
	if c.r.Kubelets[h.Name] {
		list = append(list, op.PodRestart{Manifest: module.APIServerManifest, Files: []string{AuthorityCert}, TimeoutSeconds: 300})
	}
	return list
}

// signs has a control plane sign with what comes, and be signed by it. The key goes
// first: beside an authority in front whose key is not there, nothing can be signed,
// and so nothing be planned.
func (c cluster) signs(s *engine.Scope) (op.List, error) {
	pair := engine.Get(s, keyNextCA)
	text, err := c.both(s)
	if err != nil {
		return nil, err
	}
	list := op.List{
		op.File{Path: authorityKey, Content: pair.key, Mode: 0o600, Secret: true},
		op.File{Path: module.SigningCert, Content: pair.cert},
		op.File{Path: AuthorityCert, Content: text},
	}
	for _, k := range Of(c.env, s.Host().Host) {
		if k.CA != AuthorityCert {
			continue
		}
		r := op.Renewal{CertificateFile: k.CertificateFile, CAKey: authorityKey, ValiditySeconds: int64(c.env.Validity() / time.Second), Due: op.DueForeign}
		if k.Rotates || k.Path == dir+"kubelet.conf" {
			r.Unit = kubelet
		}
		list = append(list, r)
	}
	list = append(list, c.restarts(s.Host())...)
	return append(append(list, c.serving()...), readAdmin), nil
}

// Anew has a node without the authority's key give up what its kubelet has of another
// authority than the next: it asks for others then.
func (r ClusterRotation) Anew(env module.Env) func(*engine.Host) (op.List, error) {
	return func(h *engine.Host) (op.List, error) {
		var list op.List
		for _, k := range Of(env, h.Host) {
			if k.CA == AuthorityCert && k.Rotates {
				list = append(list, op.Renewal{CertificateFile: k.CertificateFile, ValiditySeconds: 1, Due: op.DueForeign, Unit: kubelet, Remade: true})
			}
		}
		return list, nil
	}
}

// drops has a control plane trust what comes alone, and sign as it does else.
func (c cluster) drops(s *engine.Scope) (op.List, error) {
	list, err := c.control(s.Host(), engine.Get(s, keyNextCA).cert, nil, false)
	list = append(list, c.around.Follows(s.Host())...)
	return append(list, readAdmin), err
}

// admin provides the administrator's kubeconfig as it is after a step, with the CAs
// that sign certificates from then on.
func (c cluster) admin(key engine.Key[kubeconfig.Untrusted], trust func(*engine.Scope) ([]byte, error)) func(context.Context, *engine.Scope, []op.Result) error {
	return func(_ context.Context, s *engine.Scope, results []op.Result) error {
		text, err := trust(s)
		if last := results[len(results)-1]; err == nil && len(text) > 0 && c.env.IsFirst(s.Host()) && !last.Missing {
			engine.Provide(s, key, kubeconfig.Untrusted{Text: last.Output, CAs: text})
		}
		return err
	}
}
