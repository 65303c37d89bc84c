package spec

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"reflect"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

// lastApplied is the annotation in which kubectl stores the whole object, with secrets.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// RedactCluster returns a copy of c without its inline secrets, for plans, journals and
// status. Passwords are removed, so that loading the copy falls back to keys and the
// agent.
func RedactCluster(c *v1alpha1.Cluster) *v1alpha1.Cluster {
	out := c.DeepCopy()
	out.Spec.SSH.Password = ""
	for i := range out.Spec.Hosts {
		out.Spec.Hosts[i].SSH.Password = ""
	}
	delete(out.Annotations, lastApplied)
	return out
}

// DigestOf returns "sha256:" and the SHA-256 of the cluster's name and spec in canonical
// JSON, without inline secrets. A conversion to JSON or YAML and back does not change it.
func DigestOf(c *v1alpha1.Cluster) string {
	r := RedactCluster(c)
	data, err := json.Marshal(struct {
		Name string               `json:"name"`
		Spec v1alpha1.ClusterSpec `json:"spec"`
	}{r.Name, r.Spec})
	if err != nil {
		// Only a value that no file can contain (a channel, an infinity) gets here; the
		// error's text is then as good a name for it as any other.
		data = []byte(err.Error())
	}
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Marshal writes c as a file that Load can read: without status, and without fields that
// only a server sets.
func Marshal(c *v1alpha1.Cluster) ([]byte, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	var object map[string]any
	if err := utiljson.Unmarshal(data, &object); err != nil {
		return nil, err
	}
	delete(object, "status")
	pruneEmpty(object)
	return yaml.Marshal(object)
}

// MarshalCommented writes c like Marshal, with its fields in the order of the API types,
// and with comments.
func MarshalCommented(c *v1alpha1.Cluster, comments yamlfile.Comments) ([]byte, error) {
	plain, err := Marshal(c)
	if err != nil {
		return nil, err
	}
	return yamlfile.AddComments(plain, reflect.TypeFor[v1alpha1.Cluster](), comments)
}

// pruneEmpty removes the empty mappings and nulls of Go structs. In the configuration of
// a component, and in values of a chart, they have a meaning and are kept.
func pruneEmpty(object map[string]any) {
	for key, value := range object {
		if key == "config" || key == "values" {
			continue
		}
		switch value := value.(type) {
		case nil:
			delete(object, key)
		case map[string]any:
			if pruneEmpty(value); len(value) == 0 {
				delete(object, key)
			}
		case []any:
			for _, item := range value {
				if item, ok := item.(map[string]any); ok {
					pruneEmpty(item)
				}
			}
		}
	}
}
