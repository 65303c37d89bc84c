//go:build linux

package etcd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"slipway.dev/slipway/internal/node/executor/host"
	"slipway.dev/slipway/internal/node/op"
)

// GetOp executes op.EtcdGet.
type GetOp struct{ Op op.EtcdGet }

// ValuesAtOnce is how many values are requested at a time: each has at most one or two
// megabytes.
const ValuesAtOnce = 100

// A Valued is a key with its value, as etcdctl prints them.
type Valued struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

// Check queries the first member that responds.
func (x *GetOp) Check(ctx context.Context, h *host.Host) (v host.CheckResult, err error) {
	o := x.Op
	if o.Prefix == "" {
		return v, host.Invalid("reading the values of all keys is not supported")
	}
	err = errors.New("no etcd endpoint was given")
	for _, endpoint := range o.Endpoints {
		var found op.EtcdKeyValues
		if found, err = valuesAtRevision(ctx, h, o, endpoint); err == nil {
			v.Output, err = json.Marshal(found)
			return v, err
		}
	}
	return v, fmt.Errorf("reading the etcd keys with prefix %s: %w", o.Prefix, err)
}

func valuesAtRevision(ctx context.Context, h *host.Host, o op.EtcdGet, endpoint string) (found op.EtcdKeyValues, err error) {
	from, end := o.Prefix, nextKey(o.Prefix)
	for {
		out, err := runEtcdctl(ctx, h, o.EtcdClient, endpoint, "get", from, end, fmt.Sprintf("--limit=%d", ValuesAtOnce), "-w", "json")
		if err != nil {
			return found, err
		}
		var page struct {
			KVs []Valued `json:"kvs"`
		}
		if err := json.Unmarshal([]byte(out), &page); err != nil {
			return found, errors.New("etcdctl did not return a list of values")
		}
		for _, kv := range page.KVs {
			if string(kv.Key) == from { // the last one of the previous page
				continue
			}
			if found.Keys++; hasPrefix(kv.Value, o.Begins) {
				continue
			}
			if found.Others++; found.First == "" {
				found.First = string(kv.Key)
			}
		}
		if len(page.KVs) < ValuesAtOnce {
			return found, nil
		}
		from = string(page.KVs[len(page.KVs)-1].Key)
	}
}

func hasPrefix(value []byte, with string) bool {
	if with == "" {
		return !bytes.HasPrefix(value, []byte(op.Encrypted))
	}
	return bytes.HasPrefix(value, []byte(with))
}

// nextKey returns the first key after all keys with a prefix.
func nextKey(prefix string) string {
	return prefix[:len(prefix)-1] + string(prefix[len(prefix)-1]+1)
}
