package lifecycletest

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// Start lets the API server answer.
func (a *API) Start() {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	a.Running = true
}

// IsRunning reports whether the API server answers.
func (a *API) IsRunning() bool {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	return a.Running
}

// grantAdmin simulates kubeadm granting rights to the administrator, before its first request.
func (a *API) grantAdmin() {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	a.bound = true
}

// CopyObject returns a deep copy of an object.
func CopyObject(o object) object {
	raw, _ := json.Marshal(o)
	out := object{}
	if o != nil {
		_ = json.Unmarshal(raw, &out)
	}
	return out
}

// PutObject stores an object at a path.
func (a *API) PutObject(p string, o object) {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	a.Objects[p] = o
}

// HasObject reports whether there is an object at a path.
func (a *API) HasObject(p string) bool {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	return a.Objects[p] != nil
}

// RegisterNode creates a node that is ready, as its kubelet does. It keeps an existing node.
func (a *API) RegisterNode(node, machineID string) {
	if p := "/api/v1/nodes/" + node; !a.HasObject(p) {
		a.PutObject(p, object{
			"apiVersion": "v1", "kind": "Node", "metadata": object{"name": node}, "spec": object{},
			"status": object{"conditions": []any{object{"type": "Ready", "status": "True"}}, "nodeInfo": object{"machineID": machineID}},
		})
	}
}

// ReportReady simulates the kubelet of a node reporting Ready.
func (a *API) ReportReady(node string, at time.Time) {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	a.Objects["/api/v1/nodes/"+node]["status"].(object)["conditions"] = []any{object{
		"type": "Ready", "status": "True",
		"lastHeartbeatTime": at.UTC().Format(time.RFC3339),
	}}
}

// ReportVersion simulates the kubelet of a node reporting its version.
func (a *API) ReportVersion(node, version string) {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	if n := a.Objects["/api/v1/nodes/"+node]; n != nil {
		n["status"].(object)["nodeInfo"].(object)["kubeletVersion"] = version
	}
}

// MarkNodeLost makes the cluster report that a node does not answer.
func (a *API) MarkNodeLost(node string) {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	a.Objects["/api/v1/nodes/"+node]["status"].(object)["conditions"] = []any{object{"type": "Ready", "status": "Unknown"}}
}

// DeleteNode deletes a node.
func (a *API) DeleteNode(node string) { a.RemoveObject("/api/v1/nodes/" + node) }

// RemoveObject deletes the object at a path.
func (a *API) RemoveObject(p string) {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	delete(a.Objects, p)
}

// KubeletConfigPath is the path of the configuration for joining kubelets.
const KubeletConfigPath = "/api/v1/namespaces/kube-system/configmaps/kubelet-config"

// uploadConfig simulates kubeadm's phase upload-config.
func (a *API) uploadConfig() { a.WriteKubeletConfig("kubeadm", "cgroupDriver: systemd\n") }

// WriteKubeletConfig simulates a client that writes the configuration for joining kubelets.
func (a *API) WriteKubeletConfig(by, text string) {
	a.PutObject(KubeletConfigPath, object{
		"apiVersion": "v1", "kind": "ConfigMap", "data": object{"kubelet": text},
		"metadata": object{"name": "kubelet-config", "namespace": "kube-system", "managedFields": []any{
			object{"manager": by, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": object{"f:data": object{"f:kubelet": object{}}}},
		}},
	})
	a.PutObject("/api/v1/namespaces/kube-system/configmaps/kubeadm-config", object{
		"apiVersion": "v1", "kind": "ConfigMap", "data": object{"ClusterConfiguration": "clusterName: prod\n"},
		"metadata": object{"name": "kubeadm-config", "namespace": "kube-system"},
	})
}

// JoinTokens returns the secrets of bootstrap tokens.
func (a *API) JoinTokens() []string {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	var out []string
	for p, o := range a.Objects {
		if strings.Contains(p, "/secrets/bootstrap-token-") {
			data := o["data"].(object)
			text := func(k string) string { b, _ := base64.StdEncoding.DecodeString(data[k].(string)); return string(b) }
			out = append(out, text("token-id")+"."+text("token-secret"))
		}
	}
	return out
}

func (a *API) knowsToken(in string) bool {
	return slices.ContainsFunc(a.JoinTokens(), func(token string) bool { return strings.Contains(in, token) })
}

// StopServers stops all API servers.
func (a *API) StopServers() {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	a.Running = false
}

// GetObject returns an object.
func (a *API) GetObject(p string) object {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	return CopyObject(a.Objects[p])
}
