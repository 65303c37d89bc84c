package record

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"

	"sigs.k8s.io/yaml"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/module"
	"slipway.dev/slipway/internal/spec"
)

// Doors are where the API may be reached from outside of the cluster, as host
// and port: at its endpoint, if that is there for others than the nodes, and at
// each control plane, in the order of the file, whoever speaks for the cluster
// just now. There are none before the description is complete.
func Doors(c *v1alpha1.Cluster) (doors []string) {
	ep := c.Spec.ControlPlaneEndpoint
	if ep.Port == 0 {
		return nil
	}
	add := func(address string) {
		door := net.JoinHostPort(address, strconv.Itoa(ep.Port))
		if address != "" && !slices.Contains(doors, door) {
			doors = append(doors, door)
		}
	}
	switch {
	case ep.Mode == v1alpha1.EndpointUpdater: // the Service's address is the nodes' alone
	case ep.Address == "" && ep.Mode == v1alpha1.EndpointExternal:
		add(ep.Domain)
	default:
		add(ep.Address)
	}
	for _, h := range spec.HostsWithRole(c, v1alpha1.RoleControlPlane) {
		if h.Address == "localhost" { // another host elsewhere
			h.Address = module.InternalAddress(h)
		}
		add(h.Address)
	}
	return doors
}

// Outside makes a kubeconfig for use away from the nodes, by the first of the
// doors.
func Outside(env module.Env, admin []byte) ([]byte, error) {
	return Through(env, admin, Doors(env.Cluster)[0])
}

// Through makes a kubeconfig that goes by one of the doors. The nodes know the
// API by a name that others may not resolve, so the address is used and the
// name is what the certificate is checked for.
func Through(env module.Env, admin []byte, door string) ([]byte, error) {
	var doc struct {
		APIVersion     string            `json:"apiVersion"`
		Kind           string            `json:"kind"`
		CurrentContext string            `json:"current-context"`
		Clusters       []map[string]any  `json:"clusters"`
		Contexts       []json.RawMessage `json:"contexts"`
		Users          []json.RawMessage `json:"users"`
		Preferences    json.RawMessage   `json:"preferences,omitempty"`
	}
	if err := yaml.UnmarshalStrict(admin, &doc); err != nil {
		return nil, fmt.Errorf("reading the admin kubeconfig: %w", err)
	}
	for _, c := range doc.Clusters {
		if cluster, ok := c["cluster"].(map[string]any); ok {
			cluster["server"] = "https://" + door
			cluster["tls-server-name"] = env.Cluster.Spec.ControlPlaneEndpoint.Domain
		}
	}
	return yaml.Marshal(doc)
}
