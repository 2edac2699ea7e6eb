from .emitter import *
from .emitter import constant, zero
def maximum(f,a,b):
    x,y=f._pair(a,b)
    return f.select(f.bit_or(f.compare("ogt",x,y),f.compare("uno",x,x)),x,y)
def minimum(f,a,b):
    x,y=f._pair(a,b)
    return f.select(f.bit_or(f.compare("olt",x,y),f.compare("uno",x,x)),x,y)
def absolute(f,x): return f.intrinsic("fabs",x)
def sqrt(f,x): return f.intrinsic("sqrt",x)
def floor(f,x): return f.intrinsic("floor",x)
def ceil(f,x): return f.intrinsic("ceil",x)
def exp(f,x):
    x=f.min(f.max(x,-87.33654),88.72283)
    n=f.intrinsic("floor",f.fma(x,1.44269504088896341,0.5))
    r=f.fma(n,-0.693359375,x); r=f.fma(n,2.12194440e-4,r)
    p=constant(1.9875691500e-4,x.type)
    for k in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1): p=f.fma(p,r,k)
    p=f.add(f.fma(p,f.mul(r,r),r),1.0)
    i=f.convert(n,INT32)
    half=f.shift_right(i,1); rest=f.sub(i,half)
    for e in (half,rest):
        p=f.mul(p,f.bits_as(f.shift_left(f.add(e,127),23),FLOAT))
    return p
def tanh(f,x):
    x=f.min(f.max(x,-7.90531110763549805),7.90531110763549805)
    z=f.mul(x,x); p=constant(-2.76076847742355e-16,x.type)
    for k in (2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08, 1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03): p=f.fma(p,z,k)
    q=constant(1.19825839466702e-06,x.type)
    for k in (1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03): q=f.fma(q,z,k)
    return f.div(f.mul(p,x),q)
def sigmoid(f,x): return f.div(1.0,f.add(exp(f,f.neg(x)),1.0))
def log(f,x): return f.intrinsic("log",x)
log1p=expm1=erf=sin=cos=sign=log
