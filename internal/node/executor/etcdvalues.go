//go:build linux

package executor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"slipway.dev/slipway/internal/node/op"
)

// etcdValuesOp executes op.EtcdValues.
type etcdValuesOp struct{ o op.EtcdValues }

// valuesAtOnce is how many values are requested at a time: each has at most one or two
// megabytes.
const valuesAtOnce = 100

// A valued is a key with its value, as etcdctl prints them.
type valued struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

// Check queries the first member that responds.
func (x *etcdValuesOp) Check(ctx context.Context, s *session) (v verdict, err error) {
	o := x.o
	if o.Prefix == "" {
		return v, invalid("reading the values of all keys is not supported")
	}
	err = errors.New("no member is named")
	for _, endpoint := range o.Endpoints {
		var found op.EtcdValued
		if found, err = s.valuesAt(ctx, o, endpoint); err == nil {
			v.output, err = json.Marshal(found)
			return v, err
		}
	}
	return v, fmt.Errorf("reading the etcd keys with prefix %s: %w", o.Prefix, err)
}

func (s *session) valuesAt(ctx context.Context, o op.EtcdValues, endpoint string) (found op.EtcdValued, err error) {
	from, end := o.Prefix, after(o.Prefix)
	for {
		out, err := s.etcdctl(ctx, o.EtcdClient, endpoint, "get", from, end, fmt.Sprintf("--limit=%d", valuesAtOnce), "-w", "json")
		if err != nil {
			return found, err
		}
		var page struct {
			KVs []valued `json:"kvs"`
		}
		if err := json.Unmarshal([]byte(out), &page); err != nil {
			return found, errors.New("etcdctl did not return a list of values")
		}
		for _, kv := range page.KVs {
			if string(kv.Key) == from { // the last one of the previous page
				continue
			}
			if found.Keys++; begins(kv.Value, o.Begins) {
				continue
			}
			if found.Others++; found.First == "" {
				found.First = string(kv.Key)
			}
		}
		if len(page.KVs) < valuesAtOnce {
			return found, nil
		}
		from = string(page.KVs[len(page.KVs)-1].Key)
	}
}

func begins(value []byte, with string) bool {
	if with == "" {
		return !bytes.HasPrefix(value, []byte(op.Encrypted))
	}
	return bytes.HasPrefix(value, []byte(with))
}

// after returns the first key after all keys with a prefix.
func after(prefix string) string {
	return prefix[:len(prefix)-1] + string(prefix[len(prefix)-1]+1)
}
