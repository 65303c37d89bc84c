package kubeconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Fields of a kubeconfig.
const (
	keyClusters = "clusters"
	keyContexts = "contexts"
	keyUsers    = "users"
	keyCurrent  = "current-context"
)

// An entry holds the items of one cluster in a kubeconfig.
type entry struct {
	context   string // the context's name
	entryName string // the name of cluster and user
	cluster   *yaml.Node
	user      *yaml.Node
}

func entryNames(cluster string) entry {
	return entry{context: cluster, entryName: "slipway-" + cluster}
}

// A document is a kubeconfig as YAML nodes, so that the parts of others stay as written.
type document struct {
	node yaml.Node // the document
	root *yaml.Node
	// compact reports whether list items are not indented below their key, as kubectl
	// writes them.
	compact bool
}

func newDocument() *document {
	root := &yaml.Node{Kind: yaml.MappingNode}
	setField(root, "apiVersion", textNode("v1"))
	setField(root, "kind", textNode("Config"))
	return &document{node: yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{root}}, root: root, compact: true}
}

// parseDocument reads a kubeconfig. An empty one is treated as a new one.
func parseDocument(data []byte) (*document, error) {
	d := &document{compact: true}
	if !utf8.Valid(data) {
		return nil, errors.New("it is not UTF-8 text")
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&d.node); errors.Is(err, io.EOF) {
		return newDocument(), nil
	} else if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if err := dec.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("it has more than one document")
	}
	d.root = d.node.Content[0]
	if d.root.ShortTag() == "!!null" {
		return newDocument(), nil
	}
	if d.root.Kind != yaml.MappingNode {
		return nil, errors.New("it is not a mapping")
	}
	if kind := d.topLevelText("kind"); kind != "" && kind != "Config" {
		return nil, fmt.Errorf("its kind is %q", kind)
	}
	return d, d.checkLists()
}

// checkLists refuses content that cannot be edited reliably, and determines the
// indentation of lists.
func (d *document) checkLists() error {
	for i := 0; i+1 < len(d.root.Content); i += 2 {
		key, value := d.root.Content[i], d.root.Content[i+1]
		if !slices.Contains([]string{keyClusters, keyContexts, keyUsers}, key.Value) || value.ShortTag() == "!!null" {
			continue
		}
		if value.Kind != yaml.SequenceNode {
			return fmt.Errorf("line %d: %s is not a list", value.Line, key.Value)
		}
		if value.Style&yaml.FlowStyle == 0 && value.Column > key.Column {
			d.compact = false
		}
		if at := findAlias(value); at != nil {
			return fmt.Errorf("line %d: aliases (*%s) cannot be edited", at.Line, at.Value)
		}
		for _, item := range value.Content {
			if item.Kind != yaml.MappingNode {
				return fmt.Errorf("line %d: this item of %s is not a mapping", item.Line, key.Value)
			}
		}
	}
	return nil
}

// findAlias returns the first alias below n, or nil.
func findAlias(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n
	}
	for _, child := range n.Content {
		if at := findAlias(child); at != nil {
			return at
		}
	}
	return nil
}

func (d *document) encodeDocument() ([]byte, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if d.compact {
		enc.CompactSeqIndent()
	}
	if err := errors.Join(enc.Encode(&d.node), enc.Close()); err != nil {
		return nil, fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return b.Bytes(), nil
}

func (d *document) topLevelText(key string) string { return textOf(d.root, key) }

func (d *document) setText(key, value string) { setField(d.root, key, textNode(value)) }

// findItem returns the item with a name in one of the lists, or nil.
func (d *document) findItem(list, name string) *yaml.Node {
	items := fieldOf(d.root, list)
	if items == nil || name == "" {
		return nil
	}
	for _, item := range items.Content {
		if textOf(item, "name") == name {
			return item
		}
	}
	return nil
}

func (d *document) putEntry(e entry) {
	context := &yaml.Node{Kind: yaml.MappingNode}
	if old := fieldOf(d.findItem(keyContexts, e.context), "context"); textOf(old, "cluster") == e.entryName {
		context = old // keeps the user's namespace
	}
	setField(context, "cluster", textNode(e.entryName))
	setField(context, "user", textNode(e.entryName))
	d.putItem(keyClusters, e.entryName, "cluster", e.cluster)
	d.putItem(keyContexts, e.context, "context", context)
	d.putItem(keyUsers, e.entryName, "user", e.user)
}

func (d *document) putItem(list, name, key string, value *yaml.Node) {
	json := d.root.Style&yaml.FlowStyle != 0
	item := d.findItem(list, name)
	if item == nil {
		item = &yaml.Node{Kind: yaml.MappingNode}
		items := d.getOrAddList(list)
		if len(items.Content) == 0 && !json {
			items.Style = 0 // "[]" becomes a list of lines
		}
		items.Content = append(items.Content, item)
	}
	setField(item, key, value)
	setField(item, "name", textNode(name))
	if json {
		quoteNode(item)
	}
}

// getOrAddList returns one of the lists, and adds it if there is none.
func (d *document) getOrAddList(key string) *yaml.Node {
	if items := fieldOf(d.root, key); items != nil && items.Kind == yaml.SequenceNode {
		return items
	}
	setField(d.root, key, &yaml.Node{Kind: yaml.SequenceNode})
	return fieldOf(d.root, key)
}

// quoteNode keeps a JSON file valid JSON.
func quoteNode(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" {
		n.Style = yaml.DoubleQuotedStyle
	}
	for _, child := range n.Content {
		quoteNode(child)
	}
}

// removeEntry removes the items of e, and every context that refers to them.
func (d *document) removeEntry(e entry) {
	named := func(item *yaml.Node) bool { return textOf(item, "name") == e.entryName }
	d.removeItems(keyClusters, named)
	d.removeItems(keyUsers, named)
	d.removeItems(keyContexts, func(item *yaml.Node) bool {
		if textOf(fieldOf(item, "context"), "cluster") != e.entryName {
			return false
		}
		if d.topLevelText(keyCurrent) == textOf(item, "name") {
			d.setText(keyCurrent, "")
		}
		return true
	})
}

func (d *document) removeItems(list string, which func(*yaml.Node) bool) {
	items := fieldOf(d.root, list)
	if items == nil {
		return
	}
	items.Content = slices.DeleteFunc(items.Content, which)
	if len(items.Content) == 0 {
		items.Style = yaml.FlowStyle // "[]"
	}
}

func sameServer(a, b *yaml.Node) bool { return textOf(a, "server") == textOf(b, "server") }

func sameCA(a, b *yaml.Node) bool { return clusterCA(a) == clusterCA(b) && clusterCA(a) != "" }

func clusterCA(cluster *yaml.Node) string {
	return strings.Join(strings.Fields(textOf(cluster, "certificate-authority-data")), "")
}

// fieldOf returns a value of a mapping, or nil.
func fieldOf(mapping *yaml.Node, key string) *yaml.Node {
	if mapping == nil || mapping.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

func textOf(mapping *yaml.Node, key string) string {
	if n := fieldOf(mapping, key); n != nil && n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" {
		return n.Value
	}
	return ""
}

// setField replaces a value and keeps the comments of the old one, or adds it.
func setField(mapping *yaml.Node, key string, value *yaml.Node) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value != key {
			continue
		}
		old := mapping.Content[i+1]
		if old.Kind == yaml.ScalarNode && value.Kind == yaml.ScalarNode && old.Value == value.Value && old.ShortTag() == value.ShortTag() {
			return
		}
		written := *value
		written.HeadComment, written.LineComment, written.FootComment = old.HeadComment, old.LineComment, old.FootComment
		mapping.Content[i+1] = &written
		return
	}
	mapping.Content = append(mapping.Content, textNode(key), value)
}

// newMapping returns a mapping of keys and values; empty values are left out.
func newMapping(fields ...string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i+1] != "" {
			setField(n, fields[i], textNode(fields[i+1]))
		}
	}
	return n
}

// textNode returns a text node, which is quoted if YAML would read another type.
func textNode(text string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(text)
	if text == "" {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}
