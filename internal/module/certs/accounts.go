package certs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/kube"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
	"slipway.dev/slipway/internal/plan"
)

const (
	// ServiceAccount names the key that signs tokens of service accounts.
	ServiceAccount = "service-account"
	// AccountPublic are the keys that API servers verify such tokens with.
	AccountPublic  = pkiDir + "sa.pub"
	accountPrivate = pkiDir + "sa.key"
	// rotateDir is where what comes is kept until what goes has gone.
	rotateDir   = "/etc/slipway/rotate/"
	nextPrivate = rotateDir + "sa.key"
	// NextPublic is the key that comes, on the control plane that speaks for the
	// cluster: as long as it is there, an exchange is not over.
	NextPublic     = rotateDir + "sa.pub"
	markAccounts   = "slipway-rotates-service-account"
	managerPod     = dir + "manifests/kube-controller-manager.yaml"
	restartTime    = 10 * time.Minute
	restartsAtOnce = 4
)

// Rotations are what is exchanged, each with how far it has come.
type Rotations struct {
	Accounts   AccountRotation
	Cluster    ClusterRotation
	FrontProxy AuthorityRotation
	Etcd       AuthorityRotation
}

// An AccountRotation exchanges the key that signs tokens of service accounts.
type AccountRotation struct {
	// From is the key that goes, by its id; "" exchanges none.
	From string
	// Next is the key that comes, by its id; "" if it is not made yet.
	Next string
	// Known are all that control planes verify with.
	Known []pki.PublicKey
	// Gone says that no control plane verifies with it any more, Going that
	// one does not.
	Gone, Going bool
}

// keyNext is the pair of keys that comes.
var keyNext = engine.NewKey("certs.next-account-key", keyPair{})

type keyPair struct{ private, public []byte }

// RotateAccounts is the module. Every API server verifies with both keys before
// any signs with the new one, and all sign with the new one before pods that hold
// older tokens are made anew. The old one goes when nobody needs it.
func RotateAccounts(env module.Env, r AccountRotation) engine.Module {
	control := func(h *engine.Host) bool { return h.HasRole(v1alpha1.RoleControlPlane) }
	both := func(*engine.Scope) bool { return r.From != "" && !r.Gone && !r.Going }
	next := []engine.KeyRef{keyNext.Ref()}
	return engine.Module{Name: "rotate", Tasks: []engine.Task{
		{
			ID: "rotate.accounts.make", Title: "make the next key of service accounts", On: env.IsFirst, Provides: next,
			When: func(*engine.Scope) bool { return r.From != "" && !r.Gone },
			Ops: func(*engine.Scope) (op.List, error) {
				return op.List{
					op.Dir{Path: strings.TrimSuffix(rotateDir, "/"), Mode: 0o700},
					op.KeyPair{Private: nextPrivate, Public: NextPublic},
					op.ReadFile{Path: nextPrivate, Secret: true},
					op.ReadFile{Path: NextPublic},
				}, nil
			},
			After: func(_ context.Context, s *engine.Scope, results []op.Result) error {
				if n := len(results); !results[n-2].Missing && !results[n-1].Missing {
					engine.Provide(s, keyNext, keyPair{private: results[n-2].Output, public: results[n-1].Output})
				}
				return nil
			},
		},
		{
			ID: "rotate.accounts.trust", Title: "verify tokens with both keys", On: control, When: both, Rollout: rolling, Timeout: 20 * time.Minute, Consumes: next,
			Ops: func(s *engine.Scope) (op.List, error) {
				text, err := r.verifying(engine.Get(s, keyNext).public)
				return verifies(env, text), err
			},
		},
		{
			ID: "rotate.accounts.sign", Title: "sign tokens with the next key", On: control, When: both, Rollout: rolling, Timeout: 20 * time.Minute, Consumes: next,
			Needs: []string{"rotate.accounts.trust"},
			Ops:   func(s *engine.Scope) (op.List, error) { return signs(env, engine.Get(s, keyNext).private), nil },
		},
		{
			ID: "rotate.accounts.pods", Title: "make pods anew that hold older tokens", Manager: true, When: both, Timeout: time.Hour,
			Needs: []string{"rotate.accounts.sign"}, Consumes: append(next, module.KeyKube.Ref()),
			Run: &engine.Action{Check: r.olderTokens, Apply: r.renewTokens},
		},
		{
			ID: "rotate.accounts.drop", Title: "verify tokens with the next key alone", On: control, Rollout: rolling, Timeout: 20 * time.Minute, Consumes: next,
			When:  func(*engine.Scope) bool { return r.From != "" && !r.Gone },
			Needs: []string{"rotate.accounts.pods"},
			Ops:   func(s *engine.Scope) (op.List, error) { return verifies(env, engine.Get(s, keyNext).public), nil },
		},
		{
			ID: "rotate.accounts.mark", Title: "forget when it began", Manager: true, Needs: []string{"rotate.accounts.drop"}, Consumes: []engine.KeyRef{module.KeyKube.Ref()},
			When: func(*engine.Scope) bool { return r.From != "" },
			Run:  unmark(markAccounts, module.KeyKube, r.Gone),
		},
		{ // last: as long as it is there, the exchange is known
			ID: "rotate.accounts.end", Title: "forget the exchange", On: control, Needs: []string{"rotate.accounts.mark"},
			When: func(*engine.Scope) bool { return r.From != "" },
			Ops: func(*engine.Scope) (op.List, error) {
				return op.List{op.Absent{Path: nextPrivate}, op.Absent{Path: NextPublic}}, nil
			},
		},
	}}
}

// verifying is what API servers verify with while both keys count: the next, and
// all that any of them knows.
func (r AccountRotation) verifying(next []byte) ([]byte, error) {
	if len(next) == 0 {
		return nil, nil // not made yet
	}
	keys, err := pki.PublicKeys(next)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", NextPublic, err)
	}
	for _, k := range r.Known {
		if !slices.ContainsFunc(keys, func(have pki.PublicKey) bool { return have.ID == k.ID }) {
			keys = append(keys, k)
		}
	}
	var text []byte
	for _, k := range keys {
		text = append(text, k.Text...)
	}
	return text, nil
}

// verifies has a control plane's API server verify with keys, and serve.
func verifies(env module.Env, keys []byte) op.List {
	return op.List{
		op.File{Path: AccountPublic, Content: keys, Mode: 0o600},
		op.PodRestart{Manifest: module.APIServerManifest, Files: []string{accountPrivate, AccountPublic}, TimeoutSeconds: 300},
		serves(env),
	}
}

// signs has a control plane's programs sign with a key, and serve.
func signs(env module.Env, key []byte) op.List {
	return op.List{
		op.File{Path: accountPrivate, Content: key, Mode: 0o600, Secret: true},
		op.PodRestart{Manifest: module.APIServerManifest, Files: []string{accountPrivate, AccountPublic}, TimeoutSeconds: 300},
		op.PodRestart{Manifest: managerPod, Files: []string{accountPrivate}, TimeoutSeconds: 300},
		serves(env),
	}
}

// mark is an object in the cluster that is made when all go by what comes: what was
// made before it may hold something older. So the API's clock counts, and no other.
func mark(name, next string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": name, "namespace": metav1.NamespaceSystem},
		"data":     map[string]any{"to": next},
	}}
}

// markedAt is when all went by what comes; what another exchange has left says
// nothing of it.
func markedAt(ctx context.Context, client *kube.Client, name, next string) (at time.Time, err error) {
	cm, err := client.ConfigMap(ctx, metav1.NamespaceSystem, name)
	if err != nil || cm == nil || cm.Data["to"] != next {
		return at, err
	}
	return cm.CreationTimestamp.Time, nil
}

// marks makes the mark, unless it is there.
func marks(ctx context.Context, client *kube.Client, name, next string) (time.Time, error) {
	at, err := markedAt(ctx, client, name, next)
	if err != nil || !at.IsZero() {
		return at, err
	}
	if err := client.Delete(ctx, []*unstructured.Unstructured{mark(name, next)}); err != nil {
		return at, err
	}
	if err := client.Apply(ctx, []*unstructured.Unstructured{mark(name, next)}); err != nil {
		return at, err
	}
	return markedAt(ctx, client, name, next)
}

// unmark takes the mark away, which may never have been there if what goes is gone.
func unmark(name string, key engine.Key[*kube.Client], gone bool) *engine.Action {
	return &engine.Action{
		Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
			client := engine.Get(s, key)
			change := []plan.OpChange{{Kind: module.KindObject, Target: "ConfigMap " + metav1.NamespaceSystem + "/" + name, Summary: "delete"}}
			if client == nil || s.Pending() {
				return change, nil
			}
			cm, err := client.ConfigMap(ctx, metav1.NamespaceSystem, name)
			if err != nil || cm == nil && gone {
				return nil, err
			}
			return change, nil
		},
		Apply: func(ctx context.Context, s *engine.Scope) error {
			return engine.Get(s, key).Delete(ctx, []*unstructured.Unstructured{mark(name, "")})
		},
	}
}

// nextID is the id of the key that comes; "" if it is not made yet.
func nextID(s *engine.Scope) (string, error) {
	public := engine.Get(s, keyNext).public
	if len(public) == 0 {
		return "", nil
	}
	keys, err := pki.PublicKeys(public)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", NextPublic, err)
	}
	return keys[0].ID, nil
}

// olderTokens says what is to be made anew, and which tokens nothing makes anew.
func (r AccountRotation) olderTokens(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
	any := []plan.OpChange{{Kind: module.KindObject, Target: "pods with tokens of service accounts", Summary: "restart what they belong to"}}
	client := engine.Get(s, module.KeyKube)
	if client == nil || s.Pending() {
		return any, nil
	}
	next, err := nextID(s)
	if err != nil || next == "" {
		return any, err
	}
	at, err := markedAt(ctx, client, markAccounts, next)
	if err != nil || at.IsZero() {
		return any, err
	}
	held, err := r.held(ctx, client, at)
	if err != nil || len(held) == 0 {
		return nil, err
	}
	return any, nil
}

// held are what still has an older token, for people.
func (r AccountRotation) held(ctx context.Context, client *kube.Client, at time.Time) (out []string, err error) {
	pods, err := client.HoldTokens(ctx, at)
	if err != nil {
		return nil, err
	}
	for _, w := range pods {
		out = append(out, w.String())
	}
	secrets, err := client.TokenSecrets(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range secrets {
		if r.signed(t.Token) {
			out = append(out, "Secret "+t.Namespace+"/"+t.Name)
		}
	}
	return out, nil
}

// signed says that one of the keys that go has signed a token. One that names no key is
// older than what names one, as the next key does.
func (r AccountRotation) signed(token string) bool {
	id := pki.SignedBy(token)
	if id == "" {
		return strings.Count(token, ".") == 2 // else it is none
	}
	return id != r.Next && slices.ContainsFunc(r.Known, func(k pki.PublicKey) bool { return k.ID == id })
}

// renewTokens restarts what older pods belong to, some at once, and wants nothing
// to hold an older token then.
func (r AccountRotation) renewTokens(ctx context.Context, s *engine.Scope) error {
	client := engine.Get(s, module.KeyKube)
	next, err := nextID(s)
	if err != nil {
		return err
	}
	at, err := marks(ctx, client, markAccounts, next)
	if err != nil {
		return fmt.Errorf("noting since when tokens are signed with the next key: %w", err)
	}
	if err := restartOlder(ctx, s, client, client.HoldTokens, at); err != nil {
		return err
	}
	held, err := r.held(ctx, client, at)
	if err != nil || len(held) == 0 {
		return err
	}
	return &op.Error{Reason: op.IDTokensHeld, Message: "the old key of service accounts is still needed, and stays: it has signed tokens of " + strings.Join(held, ", ")}
}

// restartOlder restarts the holders of before a moment, some at once.
func restartOlder(ctx context.Context, s *engine.Scope, client *kube.Client, holders kube.Holders, at time.Time) error {
	older, err := holders(ctx, at)
	if err != nil {
		return err
	}
	var restarts errgroup.Group
	restarts.SetLimit(restartsAtOnce)
	for _, w := range older {
		// DaemonSets are first in order of names, and go one after the other: what
		// pods are reached by is whole, and knows of them, before any moves.
		if w.Kind == "DaemonSet" {
			if err := restart(ctx, s, client, w, holders, at); err != nil {
				return err
			}
			continue
		}
		restarts.Go(func() error { return restart(ctx, s, client, w, holders, at) })
	}
	return restarts.Wait()
}

// restart has a workload's pods be made anew, if it does that by itself. One that was
// deleted, if only meanwhile, makes none: the pods that it had are ending, and are waited
// for as those of others are.
func restart(ctx context.Context, s *engine.Scope, client *kube.Client, w kube.Workload, holders kube.Holders, at time.Time) error {
	rolls, err := client.Rolls(ctx, w)
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, restartTime)
	defer cancel()
	tell := func(missing string) { s.Tell("%s: %s", w, missing) }
	if rolls {
		err = rollOut(within, s, client, w, at, tell)
	}
	if err != nil || !rolls {
		if deleted, failed := client.Deleted(ctx, w); failed != nil || !deleted {
			return errors.Join(err, failed)
		}
	}
	return client.WaitOlderGone(within, w, holders, at, tell)
}

func rollOut(ctx context.Context, s *engine.Scope, client *kube.Client, w kube.Workload, at time.Time, tell func(string)) error {
	s.Tell("restarting %s", w)
	if err := client.Restart(ctx, w, at); err != nil {
		return err
	}
	return client.WaitRollout(ctx, w.Kind, w.Namespace, w.Name, tell)
}
