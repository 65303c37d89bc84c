package move

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/lifecycle/hostconn"
	"slipway.dev/slipway/internal/remote"
	"slipway.dev/slipway/internal/secret"
	"slipway.dev/slipway/internal/spec/apicheck"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

// secretFiles are the files of one Secret.
type secretFiles struct {
	name  string
	files map[string][]byte
}

// convert makes the object of the cluster, with the content of its files. The error is a diag.List
// of what an object cannot have.
func (p *pass) convert() error {
	wanted := newObject(p.cluster.Name)
	p.cluster.Spec.DeepCopyInto(&wanted.Spec)
	if p.to.Bundle != nil {
		wanted.Spec.Bundle = *p.to.Bundle
	}
	if err := p.refuseSSHConfig(); err != nil {
		return err
	}
	object, files, err := apicheck.ConvertCluster(wanted, apicheck.FileReader{
		ReadFile: func(path string) ([]byte, error) { return bounded.ReadArgument(path, apicheck.MaxFileBytes) },
		ReadVariable: func(name string) (string, error) {
			text, err := secret.ResolveSource(v1alpha1.SecretSource{Env: name})
			return text.Reveal(), err
		},
	})
	if err != nil {
		return err
	}
	if p.secrets, err = splitFiles(p.cluster.Name, files); err != nil {
		return err
	}
	var sources []apicheck.Source
	object.Spec.FilesFrom = nil
	for _, s := range p.secrets {
		object.Spec.FilesFrom = append(object.Spec.FilesFrom, v1alpha1.FilesSource{SecretRef: &v1alpha1.LocalReference{Name: s.name}})
		sources = append(sources, apicheck.Source{Found: true, Data: s.files})
	}
	p.object = object
	found := apicheck.Check(object, sources)
	for i := range found {
		found[i].Hint = cmp.Or(hints[found[i].ID], found[i].Hint)
	}
	return found.Err()
}

// hints have the remedies for problems of an object, for a user of the command line.
var hints = map[string]string{
	apicheck.IDAgent:      loginHint,
	apicheck.IDNoLogin:    loginHint,
	apicheck.IDBundleFile: "push the bundle to a registry, and name it with --bundle",
}

const loginHint = "write privateKeyFile or passwordFrom into the cluster file, apply the file, and move the cluster again"

// refuseSSHConfig refuses hosts whose login depends on the SSH configuration of the user, which the
// API does not have.
func (p *pass) refuseSSHConfig() error {
	var found diag.List
	for i, h := range p.cluster.Spec.Hosts {
		login, err := p.Resolve(hostconn.WithSSH(p.cluster, h), p.Dialer.QueryOptions())
		if err != nil {
			return err
		}
		for _, d := range slices.Concat(login.From, login.ViaFrom) {
			if d.By == remote.ByClusterFile || d.By == remote.ByDefault {
				continue
			}
			found = append(found, diag.Diagnostic{
				ID: idSSHConfig, Severity: diag.Error, Path: yamlfile.IndexPath("spec.hosts", i) + ".ssh",
				Message: "the " + d.Setting + " of host " + h.Name + " comes from " + d.By + ", and an API does not have this file",
				Hint:    "write it into the cluster file, apply the file, and move the cluster again",
			})
		}
	}
	return found.Err()
}

// maxSecretBytes limits the files of one Secret. The API has a limit for the whole object.
const maxSecretBytes = corev1.MaxSecretSize - 64<<10

// splitFiles distributes the files of a cluster among Secrets.
func splitFiles(cluster string, files map[string][]byte) (out []secretFiles, err error) {
	size := 0
	for _, key := range slices.Sorted(maps.Keys(files)) {
		need := len(key) + len(files[key])
		if need > maxSecretBytes {
			return nil, diag.Refuse(idFileTooLarge, fmt.Sprintf("the file %s has %d bytes, and a Secret cannot hold it", key, len(files[key])),
				"use a smaller file, or a URL")
		}
		if len(out) == 0 || size+need > maxSecretBytes {
			name := cluster + "-files"
			if n := len(out) + 1; n > 1 {
				name += "-" + strconv.Itoa(n)
			}
			out, size = append(out, secretFiles{name, map[string][]byte{}}), 0
		}
		out[len(out)-1].files[key] = files[key]
		size += need
	}
	return out, nil
}

// mergePatch returns the JSON merge patch that ends the move of an object.
func mergePatch(object *v1alpha1.Cluster) ([]byte, error) {
	var paused, deletion any // null removes a field
	if object.Spec.Paused {
		paused = true
	}
	if object.Spec.DeletionPolicy != "" {
		deletion = object.Spec.DeletionPolicy
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{AnnotationSource: nil}},
		"spec":     map[string]any{"paused": paused, "deletionPolicy": deletion},
	})
}
