package pack

import (
	"umbra/gitstore/cache"
	"umbra/gitstore/object"
)

// bases keeps inflated objects of one pack that others are deltas of, by where
// their entries begin.
type bases struct {
	*cache.Cache[int64, base]
	most int64 // bytes of one object
}

type base struct {
	kind object.Kind
	data []byte
}

// maxBase bounds the object that is kept, in bytes; a quarter of the cache does too.
const maxBase = 4 << 20

func newBases(b *cache.Budget) bases {
	return bases{cache.New[int64, base](b), min(b.Limit()/4, maxBase)}
}

func (c bases) get(off int64) (object.Kind, []byte, bool) {
	b, ok := c.Get(off)
	return b.kind, b.data, ok
}

// put keeps data, which must not change from then on.
func (c bases) put(off int64, kind object.Kind, data []byte) {
	if int64(cap(data)) <= c.most {
		c.Put(off, base{kind, data}, int64(cap(data)))
	}
}
