package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

// What Argo CD lets a health check take (argo-cd util/lua: Lua gets one second).
const luaTimeout = time.Second

// The codes of gitops-engine's pkg/health; Argo CD shows anything else as Unknown.
var argoCodes = []string{"Unknown", "Progressing", "Suspended", "Healthy", "Degraded", "Missing"}

type verdict struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

type answer struct {
	ArgoCD  verdict `json:"argocd"`
	Kstatus verdict `json:"kstatus"`
}

func judgeAll(script string, in io.Reader, out *json.Encoder) error {
	documents := json.NewDecoder(in)
	for {
		var raw json.RawMessage
		if err := documents.Decode(&raw); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		// Not encoding/json: it makes a generation a float, which kstatus refuses.
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(raw); err != nil {
			return err
		}
		argo, err := argoHealth(script, object)
		if err != nil {
			return fmt.Errorf("%s: %w", object.GetName(), err)
		}
		computed, err := status.Compute(object)
		if err != nil {
			return fmt.Errorf("%s: %w", object.GetName(), err)
		}
		if err := out.Encode(answer{argo, verdict{computed.Status.String(), computed.Message}}); err != nil {
			return err
		}
	}
}

// argoHealth judges an object as Argo CD does. An object that is being deleted is never shown to the script
// (gitops-engine pkg/health).
func argoHealth(script string, object *unstructured.Unstructured) (verdict, error) {
	if object.GetDeletionTimestamp() != nil {
		return verdict{"Progressing", "Pending deletion"}, nil
	}
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	// Argo CD opens these to a check of argocd-cm, and an os with time and date only, which ours has no use for. There is
	// no string, math or io unless useOpenLibs is set. The first one is what the others register themselves in.
	for _, library := range []struct {
		name string
		open lua.LGFunction
	}{{lua.LoadLibName, lua.OpenPackage}, {lua.BaseLibName, lua.OpenBase}, {lua.TabLibName, lua.OpenTable}} {
		call := lua.P{Fn: state.NewFunction(library.open), Protect: true}
		if err := state.CallByParam(call, lua.LString(library.name)); err != nil {
			return verdict{}, err
		}
	}
	limited, cancel := context.WithTimeout(context.Background(), luaTimeout)
	defer cancel()
	state.SetContext(limited)
	state.SetGlobal("obj", luaValue(state, object.Object))
	if err := state.DoString(script); err != nil {
		return verdict{}, err
	}
	table, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return verdict{}, fmt.Errorf("the script returned %s, not a table", state.Get(-1).Type())
	}
	said := verdict{lua.LVAsString(table.RawGetString("status")), lua.LVAsString(table.RawGetString("message"))}
	if !slices.Contains(argoCodes, said.Status) {
		return verdict{}, fmt.Errorf("the script returned status %q, which Argo CD shows as Unknown", said.Status)
	}
	return said, nil
}

func luaValue(state *lua.LState, value any) lua.LValue {
	switch typed := value.(type) {
	case bool:
		return lua.LBool(typed)
	case int64:
		return lua.LNumber(typed)
	case float64:
		return lua.LNumber(typed)
	case string:
		return lua.LString(typed)
	case []any:
		list := state.CreateTable(len(typed), 0)
		for _, item := range typed {
			list.Append(luaValue(state, item))
		}
		return list
	case map[string]any:
		table := state.CreateTable(0, len(typed))
		for key, item := range typed {
			table.RawSetString(key, luaValue(state, item))
		}
		return table
	}
	return lua.LNil
}
