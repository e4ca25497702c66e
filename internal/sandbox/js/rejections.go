package js

import (
	"reflect"
	"unsafe"

	"modernc.org/libc"
	"modernc.org/libquickjs"
	"modernc.org/quickjs"
)

// rejections keeps the promises that were rejected and not caught yet. The engine
// reports them through a host hook
// (JS_SetHostPromiseRejectionTracker) which the Go API has no name for: it is
// set on the runtime below it.
type rejections struct {
	waiting []rejection
	hook    func(tls *libc.TLS, ctx uintptr, promise, reason libquickjs.TJSValue, handled int32, opaque uintptr)
}

type rejection struct {
	tls             *libc.TLS
	ctx             uintptr
	promise, reason libquickjs.TJSValue
}

// track sets the hook on a VM.
func (r *rejections) track(rt *libquickjs.TJSRuntime) {
	r.hook = r.rejected
	// A C function pointer is, in this translation of C, what a Go function
	// value holds; r keeps the value alive.
	libquickjs.XJS_SetHostPromiseRejectionTracker(nil, uintptr(unsafe.Pointer(rt)), *(*uintptr)(unsafe.Pointer(&r.hook)), 0)
}

// runtimeOf finds the engine's own runtime below a VM, nil where the VM is not
// built as this was written for. It is memory of the C side: it neither moves
// nor goes while the VM is open.
func runtimeOf(vm *quickjs.VM) *libquickjs.TJSRuntime {
	runtime := reflect.ValueOf(vm).Elem().FieldByName("runtime")
	if runtime.Kind() != reflect.Pointer || runtime.IsNil() {
		return nil
	}
	address := runtime.Elem().FieldByName("cRuntime")
	if address.Kind() != reflect.Uintptr {
		return nil
	}
	at := uintptr(address.Uint())
	return *(**libquickjs.TJSRuntime)(unsafe.Pointer(&at))
}

// rejected is the hook. Promise and reason are kept alive until the
// rejection is caught or taken.
func (r *rejections) rejected(tls *libc.TLS, ctx uintptr, promise, reason libquickjs.TJSValue, handled int32, _ uintptr) {
	if handled == 0 {
		r.waiting = append(r.waiting, rejection{tls: tls, ctx: ctx, promise: libquickjs.XDupValue(tls, ctx, promise), reason: libquickjs.XDupValue(tls, ctx, reason)})
		return
	}
	for i, w := range r.waiting {
		if w.promise == promise {
			r.waiting = append(r.waiting[:i], r.waiting[i+1:]...)
			libquickjs.XFreeValue(tls, ctx, w.promise)
			libquickjs.XFreeValue(tls, ctx, w.reason)
			return
		}
	}
}

// take puts the first reason on the global object under a name; false if no
// rejection waits.
func (r *rejections) take(name string) bool {
	if len(r.waiting) == 0 {
		return false
	}
	w := r.waiting[0]
	r.waiting = nil // what is uncaught ends the program: nothing else of it counts
	key, err := libc.CString(name)
	if err != nil {
		return true
	}
	defer libc.Xfree(w.tls, key)
	global := libquickjs.XJS_GetGlobalObject(w.tls, w.ctx)
	defer libquickjs.XFreeValue(w.tls, w.ctx, global)
	const open = 7 // configurable, writable, enumerable
	libquickjs.XJS_DefinePropertyValueStr(w.tls, w.ctx, global, key, w.reason, open)
	return true
}
