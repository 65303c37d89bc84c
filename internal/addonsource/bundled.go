package addonsource

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"text/template"

	"slipway.dev/slipway/api/v1alpha1"
)

//go:embed templates
var templates embed.FS

// A bundledAddon is an add-on with images in the bundle.
type bundledAddon struct {
	// images lists the short names of its images in the bundle.
	images []string
	// values has its values with their defaults.
	values func() any
	// serving describes how it serves an API, nil if it serves none.
	serving *Serving
}

// settings are the values of local-path.
type localPath struct {
	// Path is the directory on each node.
	Path string `json:"path"`
	// Default makes it the storage class for claims without a class.
	Default bool `json:"default"`
}

// bundledAddons returns the bundled add-ons by name.
func bundledAddons() map[string]bundledAddon {
	return map[string]bundledAddon{
		"metrics-server": {images: []string{"metrics-server"}, values: func() any { return &struct{}{} }, serving: &Serving{
			Namespace: "kube-system", Secret: "metrics-server-tls", APIService: "v1beta1.metrics.k8s.io", Name: "metrics-server.kube-system.svc",
		}},
		"kube-state-metrics": {images: []string{"kube-state-metrics"}, values: func() any { return &struct{}{} }},
		"local-path": {
			images: []string{"local-path"},
			values: func() any { return &localPath{Path: "/opt/local-path-provisioner", Default: true} },
		},
	}
}

// IsBundled reports whether an add-on comes from the bundle: it names no other source.
func IsBundled(a v1alpha1.Addon) bool {
	_, ok := bundledAddons()[a.Name]
	return ok && a.Chart == nil && len(a.Manifests) == 0
}

// BundleImages returns the bundle images that add-ons use, by short name.
func BundleImages(list []v1alpha1.Addon) (out []string) {
	for _, a := range list {
		if IsBundled(a) {
			out = append(out, bundledAddons()[a.Name].images...)
		}
	}
	return out
}

// renderBundled renders a bundled add-on.
func (w *loadRun) renderBundled(a v1alpha1.Addon, out *Addon) error {
	values, err := w.mergeValues(a)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(values)
	if err != nil {
		return err
	}
	set := bundledAddons()[a.Name].values()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(set); err != nil {
		return w.refuseAddon(IDUnusable, ".values",
			"add-on "+a.Name+" does not have this value: "+strings.TrimPrefix(err.Error(), "json: "),
			"see docs/guide/addons.md for the values of this add-on")
	}
	data := map[string]any{
		"Images": map[string]string{
			"metricsServer": w.Images["metrics-server"], "kubeStateMetrics": w.Images["kube-state-metrics"],
			"localPath": w.Images["local-path"], "shell": w.Images["flannel"],
		},
		"VerifiedKubelets": w.VerifiedKubelets,
	}
	if l, ok := set.(*localPath); ok {
		if !path.IsAbs(l.Path) || path.Clean(l.Path) == "/" {
			return w.refuseAddon(IDUnusable, ".values.path", fmt.Sprintf("%q is not a valid directory for volumes", l.Path),
				"write the absolute path of a directory on every node that only this add-on uses")
		}
		data["Path"], data["Default"] = path.Clean(l.Path), l.Default
	}
	out.Serving = bundledAddons()[a.Name].serving
	if a.Name == "metrics-server" && !w.VerifiedKubelets {
		out.Sources = append(out.Sources,
			"kubelet certificates are not verified: each kubelet signed its own (kubernetes.kubelet.config.serverTLSBootstrap)")
	}
	t, err := template.ParseFS(templates, "templates/"+a.Name+".yaml")
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := t.Execute(&text, data); err != nil {
		return err
	}
	return w.decodeObjects("", a.Name, text.Bytes(), out)
}
