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
	// ServiceAccount is the name of the key that signs service account tokens.
	ServiceAccount = "service-account"
	// AccountPublic holds the keys with which API servers verify such tokens.
	AccountPublic  = pkiDir + "sa.pub"
	accountPrivate = pkiDir + "sa.key"
	// rotateDir holds the new keys and CAs until a rotation is complete.
	rotateDir   = "/etc/slipway/rotate/"
	nextPrivate = rotateDir + "sa.key"
	// NextPublic is the new key, on the leader control plane. A rotation is not complete
	// as long as this file exists.
	NextPublic     = rotateDir + "sa.pub"
	markAccounts   = "slipway-rotates-service-account"
	managerPod     = dir + "manifests/kube-controller-manager.yaml"
	restartTime    = 10 * time.Minute
	restartsAtOnce = 4
)

// Rotations holds everything that is rotated, each with its progress.
type Rotations struct {
	Accounts   AccountRotation
	Cluster    ClusterRotation
	FrontProxy AuthorityRotation
	Etcd       AuthorityRotation
}

// An AccountRotation rotates the service account key.
type AccountRotation struct {
	// From is the id of the old key; "" means no rotation.
	From string
	// Next is the id of the new key; "" if it does not exist yet.
	Next string
	// Known holds all keys with which control planes verify.
	Known []pki.PublicKey
	// Gone reports whether no control plane verifies with the old key. Going reports
	// whether at least one does not.
	Gone, Going bool
}

// keyNext is the new key pair.
var keyNext = engine.NewKey("certs.next-account-key", keyPair{})

type keyPair struct{ private, public []byte }

// RotateAccounts is the module that rotates the service account key. Every API server
// verifies with both keys before any signs with the new one. All sign with the new one
// before pods with old tokens are restarted. The old key is removed when nothing needs it.
func RotateAccounts(env module.Env, r AccountRotation) engine.Module {
	control := func(h *engine.Host) bool { return h.HasRole(v1alpha1.RoleControlPlane) }
	both := func(*engine.Scope) bool { return r.From != "" && !r.Gone && !r.Going }
	next := []engine.KeyRef{keyNext.Ref()}
	return engine.Module{Name: "rotate", Tasks: []engine.Task{
		{
			ID: "rotate.accounts.make", Title: "create new service account key", On: env.IsFirst, Provides: next,
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
					engine.ProvideValue(s, keyNext, keyPair{private: results[n-2].Output, public: results[n-1].Output})
				}
				return nil
			},
		},
		{
			ID: "rotate.accounts.trust", Title: "verify tokens with both keys", On: control, When: both,
			Rollout: rolling, Timeout: 20 * time.Minute, Consumes: next,
			Ops: func(s *engine.Scope) (op.List, error) {
				text, err := r.verificationKeys(engine.GetValue(s, keyNext).public)
				return verifyWithKeys(env, text), err
			},
		},
		{
			ID: "rotate.accounts.sign", Title: "sign tokens with new key", On: control, When: both, Rollout: rolling,
			Timeout: 20 * time.Minute, Consumes: next,
			Needs: []string{"rotate.accounts.trust"},
			Ops: func(s *engine.Scope) (op.List, error) {
				return signWithKey(env, engine.GetValue(s, keyNext).private), nil
			},
		},
		{
			ID: "rotate.accounts.pods", Title: "restart pods that use old tokens", Manager: true, When: both, Timeout: time.Hour,
			Needs: []string{"rotate.accounts.sign"}, Consumes: append(next, module.KeyKube.Ref()),
			Run: &engine.Action{Check: r.olderTokens, Apply: r.renewTokens},
		},
		{
			ID: "rotate.accounts.drop", Title: "verify tokens with new key only", On: control, Rollout: rolling,
			Timeout: 20 * time.Minute, Consumes: next,
			When:  func(*engine.Scope) bool { return r.From != "" && !r.Gone },
			Needs: []string{"rotate.accounts.pods"},
			Ops: func(s *engine.Scope) (op.List, error) {
				return verifyWithKeys(env, engine.GetValue(s, keyNext).public), nil
			},
		},
		{
			ID: "rotate.accounts.mark", Title: "delete rotation marker", Manager: true,
			Needs: []string{"rotate.accounts.drop"}, Consumes: []engine.KeyRef{module.KeyKube.Ref()},
			When: func(*engine.Scope) bool { return r.From != "" },
			Run:  deleteMarkAction(markAccounts, module.KeyKube, r.Gone),
		},
		{ // last: these files show that a rotation is not complete
			ID: "rotate.accounts.end", Title: "delete rotation files", On: control, Needs: []string{"rotate.accounts.mark"},
			When: func(*engine.Scope) bool { return r.From != "" },
			Ops: func(*engine.Scope) (op.List, error) {
				return op.List{op.Absent{Path: nextPrivate}, op.Absent{Path: NextPublic}}, nil
			},
		},
	}}
}

// verificationKeys returns the keys with which API servers verify during the rotation:
// the new key, and all that any of them has.
func (r AccountRotation) verificationKeys(next []byte) ([]byte, error) {
	if len(next) == 0 {
		return nil, nil // does not exist yet
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

// verifyWithKeys makes the API server of a control plane verify with keys, and waits
// until it serves.
func verifyWithKeys(env module.Env, keys []byte) op.List {
	return append(op.List{
		op.File{Path: AccountPublic, Content: keys, Mode: 0o600},
		op.StaticPodRestart{Manifest: module.APIServerManifest, Files: []string{accountPrivate, AccountPublic}, TimeoutSeconds: 300},
		waitAPIServes(env),
	}, env.ComponentsHealthy()...)
}

// signWithKey makes the components of a control plane sign with a key, and waits until
// the API server serves.
func signWithKey(env module.Env, key []byte) op.List {
	return append(op.List{
		op.File{Path: accountPrivate, Content: key, Mode: 0o600, Secret: true},
		op.StaticPodRestart{Manifest: module.APIServerManifest, Files: []string{accountPrivate, AccountPublic}, TimeoutSeconds: 300},
		op.StaticPodRestart{Manifest: managerPod, Files: []string{accountPrivate}, TimeoutSeconds: 300},
		waitAPIServes(env),
	}, env.ComponentsHealthy()...)
}

// markObject returns an object that is created in the cluster when all components use
// the new key or CA. Older objects may still hold the old one. Its creation time makes
// the clock of the API the only one that counts.
func markObject(name, next string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": name, "namespace": metav1.NamespaceSystem},
		"data":     map[string]any{"to": next},
	}}
}

// readMarkTime returns when all components used the new key or CA. A mark of another
// rotation is ignored.
func readMarkTime(ctx context.Context, client *kube.Client, name, next string) (at time.Time, err error) {
	cm, err := client.ConfigMaps().Get(ctx, metav1.NamespaceSystem, name)
	if err != nil || cm == nil || cm.Data["to"] != next {
		return at, err
	}
	return cm.CreationTimestamp.Time, nil
}

// createMark creates the mark, unless it exists.
func createMark(ctx context.Context, client *kube.Client, name, next string) (time.Time, error) {
	at, err := readMarkTime(ctx, client, name, next)
	if err != nil || !at.IsZero() {
		return at, err
	}
	if err := client.Objects().Delete(ctx, []*unstructured.Unstructured{markObject(name, next)}); err != nil {
		return at, err
	}
	if err := client.Objects().Apply(ctx, []*unstructured.Unstructured{markObject(name, next)}); err != nil {
		return at, err
	}
	return readMarkTime(ctx, client, name, next)
}

// deleteMarkAction deletes the mark. The mark may never have existed if the old key or
// CA is gone.
func deleteMarkAction(name string, key engine.Key[*kube.Client], gone bool) *engine.Action {
	return &engine.Action{
		Check: func(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
			client := engine.GetValue(s, key)
			change := []plan.OpChange{{Kind: module.KindObject, Target: "ConfigMap " + metav1.NamespaceSystem + "/" + name, Summary: "delete"}}
			if client == nil || s.IsPending() {
				return change, nil
			}
			cm, err := client.ConfigMaps().Get(ctx, metav1.NamespaceSystem, name)
			if err != nil || cm == nil && gone {
				return nil, err
			}
			return change, nil
		},
		Apply: func(ctx context.Context, s *engine.Scope) error {
			return engine.GetValue(s, key).Objects().Delete(ctx, []*unstructured.Unstructured{markObject(name, "")})
		},
	}
}

// nextID returns the id of the new key; "" if it does not exist yet.
func nextID(s *engine.Scope) (string, error) {
	public := engine.GetValue(s, keyNext).public
	if len(public) == 0 {
		return "", nil
	}
	keys, err := pki.PublicKeys(public)
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", NextPublic, err)
	}
	return keys[0].ID, nil
}

// olderTokens returns the change if pods must be restarted, or if something holds a token
// that is not renewed automatically.
func (r AccountRotation) olderTokens(ctx context.Context, s *engine.Scope) ([]plan.OpChange, error) {
	any := []plan.OpChange{{Kind: module.KindObject, Target: "pods with service account tokens", Summary: "restart their workloads"}}
	client := engine.GetValue(s, module.KeyKube)
	if client == nil || s.IsPending() {
		return any, nil
	}
	next, err := nextID(s)
	if err != nil || next == "" {
		return any, err
	}
	at, err := readMarkTime(ctx, client, markAccounts, next)
	if err != nil || at.IsZero() {
		return any, err
	}
	held, err := r.oldTokenHolders(ctx, client, at)
	if err != nil || len(held) == 0 {
		return nil, err
	}
	return any, nil
}

// oldTokenHolders returns the names of everything that still has an old token.
func (r AccountRotation) oldTokenHolders(ctx context.Context, client *kube.Client, at time.Time) (out []string, err error) {
	pods, err := client.Trust().FindTokenHolders(ctx, at)
	if err != nil {
		return nil, err
	}
	for _, w := range pods {
		out = append(out, w.String())
	}
	secrets, err := client.Trust().ListTokenSecrets(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range secrets {
		if r.hasSigned(t.Token) {
			out = append(out, "Secret "+t.Namespace+"/"+t.Name)
		}
	}
	return out, nil
}

// hasSigned reports whether an old key signed a token. A token that names no key is older
// than tokens that do; tokens of the new key do.
func (r AccountRotation) hasSigned(token string) bool {
	id := pki.SignedBy(token)
	if id == "" {
		return strings.Count(token, ".") == 2 // otherwise it is not a token
	}
	return id != r.Next && slices.ContainsFunc(r.Known, func(k pki.PublicKey) bool { return k.ID == id })
}

// renewTokens restarts the workloads of older pods, several at a time, and then returns an
// error if something still holds an old token.
func (r AccountRotation) renewTokens(ctx context.Context, s *engine.Scope) error {
	client := engine.GetValue(s, module.KeyKube)
	next, err := nextID(s)
	if err != nil {
		return err
	}
	at, err := createMark(ctx, client, markAccounts, next)
	if err != nil {
		return fmt.Errorf("recording when all tokens were signed with the new key: %w", err)
	}
	if err := restartOlder(ctx, s, client, client.Trust().FindTokenHolders, at); err != nil {
		return err
	}
	held, err := r.oldTokenHolders(ctx, client, at)
	if err != nil || len(held) == 0 {
		return err
	}
	return &op.Error{Reason: op.IDTokensHeld, Message: "the old service account key is still needed and is kept: " +
		"tokens signed with it are in use by " + strings.Join(held, ", ")}
}

// restartOlder restarts the workloads that are older than a time, several at a time.
func restartOlder(ctx context.Context, s *engine.Scope, client *kube.Client, holders kube.HoldersFunc, at time.Time) error {
	older, err := holders(ctx, at)
	if err != nil {
		return err
	}
	var restarts errgroup.Group
	restarts.SetLimit(restartsAtOnce)
	for _, w := range older {
		// DaemonSets come first in the order of names, and are restarted one after the
		// other: the network of the pods is then complete before any other pod moves.
		if w.Kind == "DaemonSet" {
			if err := restartWorkload(ctx, s, client, w, holders, at); err != nil {
				return err
			}
			continue
		}
		restarts.Go(func() error { return restartWorkload(ctx, s, client, w, holders, at) })
	}
	return restarts.Wait()
}

// restartWorkload restarts the pods of a workload, if it can recreate them. A workload
// that was deleted, even during the restart, recreates none: its pods are ending, and
// are waited for like other pods.
func restartWorkload(ctx context.Context, s *engine.Scope, client *kube.Client, w kube.Workload,
	holders kube.HoldersFunc, at time.Time,
) error {
	rolls, err := client.Workloads().RollsOnRestart(ctx, w)
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, restartTime)
	defer cancel()
	tell := func(missing string) { s.ShowProgress("%s: %s", w, missing) }
	if rolls {
		err = rollOut(within, s, client, w, at, tell)
	}
	if err != nil || !rolls {
		if deleted, failed := client.Workloads().IsDeleted(ctx, w); failed != nil || !deleted {
			return errors.Join(err, failed)
		}
	}
	return client.Workloads().WaitOldPodsGone(within, w, holders, at, tell)
}

func rollOut(ctx context.Context, s *engine.Scope, client *kube.Client, w kube.Workload, at time.Time, tell func(string)) error {
	s.ShowProgress("restarting %s", w)
	if err := client.Workloads().Restart(ctx, w, at); err != nil {
		return err
	}
	return client.Workloads().WaitRollout(ctx, w.Kind, w.Namespace, w.Name, tell)
}
