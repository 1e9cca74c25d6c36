// SPDX-License-Identifier: Apache-2.0
using System;
using System.Threading;
using Outrigger.Lowlevel;

namespace Outrigger
{
    /// <summary>A call failed: its status, and the library's text with the offending value, the rule and the way out.</summary>
    public sealed class OutriggerException : Exception
    {
        /// <summary>One of Native.E_….</summary>
        public int Code { get; }

        /// <summary>Such as "OTR_E_SHAPE".</summary>
        public string Status { get; }

        /// <summary>The library's text alone.</summary>
        public string Text { get; }

        public OutriggerException(int code, string text) : base(Native.status_name(code) + ": " + text)
        {
            Code = code;
            Status = Native.status_name(code);
            Text = text;
        }
    }

    static class Lists
    {
        /// <summary>The length and then the items, as csharp.i hands them over.</summary>
        internal static long[] Counted(long[] items)
        {
            if (items == null)
            {
                return null;
            }
            var counted = new long[items.Length + 1];
            counted[0] = items.Length;
            items.CopyTo(counted, 1);
            return counted;
        }
    }

    /// <summary>A handle of the library, given back once: when Dispose was called and no thread is in a call on it. What nobody disposes
    /// is given back by the finalizer of its class in Outrigger.Lowlevel.</summary>
    public abstract class Handle<T> : IDisposable where T : class, IDisposable
    {
        readonly object gate = new object();
        readonly T made;
        bool isClosed;
        int uses;
        int depth;
        Thread owner;

        protected Handle(T made)
        {
            this.made = made;
        }

        internal T Begin(bool isAlone)
        {
            lock (gate)
            {
                if (isClosed)
                {
                    throw new ObjectDisposedException(GetType().Name);
                }
                if (isAlone && owner != null && owner != Thread.CurrentThread)
                {
                    throw new InvalidOperationException("another thread is in a call on this " + GetType().Name + ": one thread at a time uses it");
                }
                if (isAlone)
                {
                    owner = Thread.CurrentThread;
                    depth++;
                }
                uses++;
                return made;
            }
        }

        internal void End(bool isAlone)
        {
            lock (gate)
            {
                if (isAlone && --depth == 0)
                {
                    owner = null;
                }
                uses--;
                GiveBack();
            }
        }

        void GiveBack()
        {
            if (isClosed && uses == 0)
            {
                made.Dispose();
            }
        }

        /// <summary>A call of one thread at a time.</summary>
        internal R Alone<R>(Func<T, R> call) => Run(true, call);

        internal void Alone(Action<T> call) => Run(true, each => { call(each); return 0; });

        /// <summary>A call that the header marks "any thread".</summary>
        internal R Any<R>(Func<T, R> call) => Run(false, call);

        internal void Any(Action<T> call) => Run(false, each => { call(each); return 0; });

        R Run<R>(bool isAlone, Func<T, R> call)
        {
            T own = Begin(isAlone);
            try
            {
                return call(own);
            }
            finally
            {
                End(isAlone);
            }
        }

        protected bool IsClosed
        {
            get
            {
                lock (gate)
                {
                    return isClosed;
                }
            }
        }

        /// <summary>Gives the handle back. Local, any thread. Doing it again is a no-op.</summary>
        public virtual void Dispose()
        {
            lock (gate)
            {
                isClosed = true;
                GiveBack();
            }
        }
    }
}
