package carotation

import (
	"context"
	"fmt"
	"slices"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/engine"
	"slipway.dev/slipway/internal/module/certs"
	"slipway.dev/slipway/internal/node/op"
	"slipway.dev/slipway/internal/pki"
)

// finished stands for the old CA or key once nothing trusts it. No real id equals it.
const finished = "finished"

// refuseOtherFile refuses a cluster whose components use another file than the rotated one,
// because of arguments with these names.
func refuseOtherFile(c *v1alpha1.Cluster, id, what, file string, names ...string) error {
	k := c.Spec.Kubernetes
	for _, args := range []map[string]string{k.APIServer.ExtraArgs, k.ControllerManager.ExtraArgs} {
		for _, name := range names {
			if args[name] != "" {
				return diag.Refuse(id, "the cluster file sets "+name+" to "+args[name]+": "+what+" is not in "+file,
					"rotate the CA or key where its files are kept, or remove the argument from extraArgs and apply the file first")
			}
		}
	}
	return nil
}

// lookAtAccounts reads from every control plane the keys that verify service account
// tokens. from is the old key, "" if it is not known yet.
func (q Query) lookAtAccounts(ctx context.Context, from string, out *certs.Rotations) (string, error) {
	if err := refuseOtherFile(q.Env.Cluster, idKeyElsewhere, "the service account key", certs.AccountPublic,
		"service-account-key-file", "service-account-signing-key-file", "service-account-signing-endpoint",
		"service-account-private-key-file"); err != nil {
		return "", err
	}
	r := certs.AccountRotation{From: from}
	var all [][]string
	for _, h := range q.Hosts {
		if !h.HasRole(v1alpha1.RoleControlPlane) {
			continue
		}
		keys, err := accountKeys(ctx, h, certs.AccountPublic)
		if err != nil {
			return "", err
		}
		if len(keys) == 0 {
			return "", diag.Refuse(idRotationKey, h.Name+" has no "+certs.AccountPublic+": it is unknown which key its API server uses",
				"restore the file from a backup or from another control plane")
		}
		if q.Env.IsFirst(h) {
			next, err := accountKeys(ctx, h, certs.NextPublic)
			if err != nil {
				return "", err
			}
			if len(next) > 0 {
				r.Next = next[0].ID
			}
		}
		var ids []string
		for _, k := range keys {
			ids = append(ids, k.ID)
			if !slices.ContainsFunc(r.Known, func(have pki.PublicKey) bool { return have.ID == k.ID }) {
				r.Known = append(r.Known, k)
			}
		}
		all = append(all, ids)
	}
	r.From, r.Gone, r.Going = rotationProgress(all, from, r.Next)
	out.Accounts = r
	return r.From, nil
}

// rotationProgress determines the progress of a rotation from the ids that each host trusts and
// the id of the next CA or key. It returns the id of the old one, whether all hosts
// have dropped it, and whether some have.
func rotationProgress(all [][]string, from, next string) (goes string, gone, going bool) {
	if goes = from; goes == "" {
		goes = oldID(all, next)
	}
	// Hosts drop the old one last, when all of them trust the next one. Before that, a
	// host without the old one has not dropped it.
	last := next != "" && !slices.ContainsFunc(all, func(ids []string) bool { return !slices.Contains(ids, next) })
	gone = true
	for _, ids := range all {
		has := slices.Contains(ids, goes)
		gone, going = gone && !has, going || !has && last
	}
	return goes, gone, going
}

// oldID returns the id of the old CA or key. A rotation that has begun continues: its
// next CA or key is never taken for the old one.
func oldID(all [][]string, next string) string {
	var known []string
	for _, id := range slices.Concat(all...) {
		if !slices.Contains(known, id) {
			known = append(known, id)
		}
	}
	for _, id := range slices.Backward(known) {
		if id != next {
			return id
		}
	}
	return finished
}

// accountKeys returns the keys in a file of a control plane, none if there is no file.
func accountKeys(ctx context.Context, h *engine.Host, file string) ([]pki.PublicKey, error) {
	text, err := fileOf(ctx, h, file)
	if text == nil || err != nil {
		return nil, err
	}
	keys, err := pki.PublicKeys(text)
	if err != nil {
		return nil, diag.Refuse(idRotationKey, fmt.Sprintf("reading %s of %s: %v", file, h.Name, err), "restore the file from a backup")
	}
	return keys, nil
}

// fileOf returns the content of a file of a host, nil if there is no file.
func fileOf(ctx context.Context, h *engine.Host, file string) ([]byte, error) {
	results, err := h.Conn.Check(ctx, op.List{op.ReadFile{Path: file}})
	if err != nil {
		return nil, fmt.Errorf("reading %s of %s: %w", file, h.Name, err)
	}
	if len(results) != 1 {
		return nil, fmt.Errorf("reading %s of %s: %d results", file, h.Name, len(results))
	}
	if results[0].Error != nil {
		return nil, fmt.Errorf("reading %s of %s: %w", file, h.Name, results[0].Error)
	}
	if results[0].Missing {
		return nil, nil
	}
	return results[0].Output, nil
}
